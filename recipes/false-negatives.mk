# Unlabelled positives among mined negatives: how many, does a teacher find them, and what does each way of training make
# of them? Half of the positives of every query that has several are hidden; then the pipeline is run as if they had never
# been known, in six ways, over three seeds (each hides others), and measured on a test split that keeps all its labels.
# The teacher learns from the queries with one positive, of which nothing is hidden, or from the same ones (JUDGES=train);
# TEACHER=folder takes one that is there already, and that has not seen what is hidden.
#
#   make -f recipes/false-negatives.mk                                                     SciFact
#   make -f recipes/false-negatives.mk SOURCE=cranfield SPLIT=test JUDGES=train            half of its queries are the test
#   make -f recipes/false-negatives.mk SOURCE=medquad PART='--queries 200 --documents 5000' LENGTH=128    a part of it
#
#   naive      mined without any rule on scores
#   window     only ranks 30 to 100
#   threshold  only what scores below 95 % of the positive
#   drop       the teacher's suspects leave, the next candidates take their places
#   promote    the teacher's suspects are positives
#   distil     the teacher's scores are followed, over candidates of all strata

EMBEDTRAIN ?= embedtrain
PYTHON     ?= python
SOURCE     ?= recipes/data/scifact
SPLIT      ?= train
OUT        ?= build/false-negatives
MODEL      ?= sentence-transformers/all-MiniLM-L6-v2
SEEDS      ?= 0 1 2
PART       ?=
EPOCHS     ?= 3
LENGTH     ?= 160
JUDGES     ?= single
TEACHER    ?=

HELP   := $(PYTHON) recipes/hidden_positives.py
TUNING := --loss infonce --temperature 0.05 --learning-rate 5e-5 --epochs $(EPOCHS) --max-document-length $(LENGTH)
ARMS   := naive window threshold drop promote distil

define train-teacher
$(EMBEDTRAIN) mine $(OUT)/$*/collection --split $(JUDGES) --model $(MODEL) --top-k 100 --max-ratio 0 --out $(OUT)/$*/judges.parquet && \
	$(EMBEDTRAIN) train-teacher $(OUT)/$*/judges.parquet --model $(MODEL) --negatives 4 --max-length $(LENGTH) --seed $* --out $(OUT)/$*/teacher
endef

.PHONY: compare
compare: $(SEEDS:%=$(OUT)/%/results/summary.json)
	@for seed in $(SEEDS); do echo "seed $$seed, hidden positives:"; \
	    $(HELP) count $(OUT)/$$seed/collection $(OUT)/$$seed/naive.parquet $(OUT)/$$seed/scored.parquet; done
	@$(HELP) compare $(SEEDS:%=$(OUT)/%/results)

# One seed from its collection to its evaluation; each command knows itself what is up to date.
$(OUT)/%/results/summary.json:
	$(HELP) hide $(SOURCE) --split $(SPLIT) --seed $* $(PART) --out $(OUT)/$*/collection
	$(EMBEDTRAIN) mine $(OUT)/$*/collection --model $(MODEL) --top-k 100 --max-ratio 0 --out $(OUT)/$*/naive.parquet
	$(EMBEDTRAIN) mine --reselect $(OUT)/$*/naive.parquet --max-ratio 0 --ranks 30:100 --out $(OUT)/$*/window.parquet
	$(EMBEDTRAIN) mine --reselect $(OUT)/$*/naive.parquet --max-ratio 0.95 --out $(OUT)/$*/threshold.parquet
	$(if $(TEACHER),,$(train-teacher))
	@# A teacher of a few hundred queries may be worse than the retriever: what comes of believing it is the question here.
	$(EMBEDTRAIN) score-teacher $(OUT)/$*/naive.parquet --teacher $(or $(TEACHER),$(OUT)/$*/teacher) --trust --candidates 20 --policy keep \
	    --out $(OUT)/$*/scored.parquet
	$(EMBEDTRAIN) score-teacher $(OUT)/$*/scored.parquet --trust --policy drop --out $(OUT)/$*/drop.parquet
	$(EMBEDTRAIN) score-teacher $(OUT)/$*/scored.parquet --trust --policy promote --out $(OUT)/$*/promote.parquet
	$(EMBEDTRAIN) score-teacher $(OUT)/$*/scored.parquet --trust --policy keep --sample stratified --out $(OUT)/$*/distil.parquet
	for arm in naive window threshold drop promote; do \
	    $(EMBEDTRAIN) finetune $(OUT)/$*/$$arm.parquet --model $(MODEL) $(TUNING) --seed $* --out $(OUT)/$*/$$arm || exit 1; done
	$(EMBEDTRAIN) finetune $(OUT)/$*/distil.parquet --model $(MODEL) $(TUNING) --loss infonce:0.2,kl:1.0 --seed $* --out $(OUT)/$*/distil
	$(EMBEDTRAIN) eval $(OUT)/$*/collection --split test --model $(MODEL) $(ARMS:%=--model $(OUT)/$*/%) --out $(OUT)/$*/results
