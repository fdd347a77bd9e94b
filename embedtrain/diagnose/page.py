"""What stands on the page around its sections: words, facts, and the command that makes it again."""

import dataclasses
import shlex

from embedtrain.artifacts import Claim
from embedtrain.config import DiagnoseOptions

WORDS = (
    (
        "positives above random",
        "Share of random documents of the sample that score below a positive for the same query, averaged over "
        "queries (the area under the ROC curve). The one number here that speaks of ranking.",
    ),
    (
        "alignment",
        "Mean squared distance of positive pairs on the unit sphere: 2 - 2 cos. Wang and Isola 2020, "
        "arXiv 2005.10242.",
    ),
    ("uniformity", "log mean exp(-2 d²) over all distinct pairs of documents. Wang and Isola 2020."),
    (
        "random-pair cosine",
        "Cosine of two different documents of the sample, all pairs. High values alone are no fault: what counts "
        "is how far positives stand above them.",
    ),
    (
        "components for 95 %",
        "Principal components (of the centred documents) that hold 95 % of the variance. Few of them mean that "
        "most dimensions carry nothing.",
    ),
    (
        "RankMe",
        "exp of the entropy of the singular values of the documents’ matrix, not centred: the number of "
        "directions in use. Garrido et al. 2023, arXiv 2210.02885.",
    ),
    (
        "participation ratio",
        "(sum of variances)² / sum of squared variances of the principal components; n·d/(n+d) for n isotropic "
        "vectors of d dimensions.",
    ),
    (
        "mean resultant length",
        "Length of the mean of all directions: 0 even, 1 one point. κ = R(d − R²)/(1 − R²): Banerjee et al. 2005.",
    ),
    ("effective rank", "exp of the entropy of the shares of the variance. Roy and Vetterli 2007."),
    ("NESum", "Sum of the variances over the largest. He and Ozay 2022."),
    (
        "decay of the spectrum",
        "Exponent of the power law of the variances, from the 4th to the 100th component. Agrawal et al. 2022, arXiv 2202.05808.",
    ),
    ("IsoScore", "(participation ratio − 1)/(d − 1). Rudman et al. 2022, arXiv 2108.07344."),
    ("intrinsic dimension", "TwoNN, without duplicates. Facco et al. 2017, arXiv 1803.06992."),
    ("hub skewness", "Skewness of how often a document is in a top 10. Radovanovic et al. 2010."),
    (
        "share of the hardest negative",
        "Share of the gradient on the negatives that one of them takes: the largest of softmax(similarity / temperature) over the negatives. Wang and Liu 2021, arXiv 2012.09740.",
    ),
    (
        "evenness of the push",
        "Entropy of these shares over its ceiling log N: 1 where all negatives are pushed alike.",
    ),
    (
        "information certified",
        "log(candidates) − loss: a lower bound on the mutual information of query and document, in nats, never above log(candidates). van den Oord et al. 2018, arXiv 1807.03748.",
    ),
    (
        "healthy, watch, collapsed",
        "Rules of thumb, set so that working models pass. Where a base model is given, a marked change from it is "
        "a reason to watch as well.",
    ),
)


def command(claim: Claim, options: DiagnoseOptions) -> str:
    """The command line that makes this report again."""
    names = {item.role: item.name for item in claim.inputs}
    words = ["embedtrain", "diagnose", *([names["model"]] if "model" in names else [])]
    roles = {"collection": "--collection", "base": "--against", "evaluation": "--eval"}
    for role, flag in (roles | {"mined": "--mined", "scored": "--mined"}).items():
        words += [flag, names[role]] if role in names else []
    default = DiagnoseOptions()
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value is not None and value != getattr(default, field.name):
            words += [f"--{field.name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join([*words, "--out", claim.out.name])
