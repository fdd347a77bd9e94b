# A click log becomes training pairs: how many of them are right? The log is made by a simulated user of a
# collection whose qrels are the truth, who looks at the result at rank k with chance 1 / k ** ETA and clicks on
# irrelevant ones too.
#
#   make -f recipes/clicks.mk                                            SciFact
#   make -f recipes/clicks.mk SOURCE=path/to/squad-small SESSIONS=200000
#
# What is shown: precision and recall of the positives beside as many pairs of the highest click rate; those
# found `low`, at a mean rank of 3 or more, which a click rate misses; the share of negatives that are truly not
# relevant; and how near the propensities that the log was corrected with come to those of the user.

EMBEDTRAIN ?= embedtrain
PYTHON     ?= python
SOURCE     ?= recipes/data/scifact
OUT        ?= build/clicks
SESSIONS   ?= 50000
ETA        ?= 1.0
SEED       ?= 0

.PHONY: clicks
clicks: $(OUT)/log.jsonl
	$(EMBEDTRAIN) harvest $(OUT)/log.jsonl --kind clicks --texts $(SOURCE) --out $(OUT)/collection
	@$(PYTHON) recipes/simulate_clicks.py compare $(SOURCE) $(OUT)/log.jsonl $(OUT)/collection --eta $(ETA)

$(OUT)/log.jsonl:
	$(PYTHON) recipes/simulate_clicks.py simulate $(SOURCE) --sessions $(SESSIONS) --eta $(ETA) --seed $(SEED) --out $@
