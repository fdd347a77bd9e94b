# Does the tuned model go live? One command that fails where it must not (exit code 3, which make shows as Error 3); after
# `make demo`:
#
#   make -f recipes/gate.mk
#   make -f recipes/gate.mk BASELINE=evaluations/live     the model that is live now was evaluated there
#   make -f recipes/gate.mk GUARDS="--guard general"      what else must not be forgotten, besides everyday English
#
# The requirements are an example: copy this file and write your own. gate.xml is for the CI's list of tests, gate.md
# for its page (github-actions.yml shows both).

EMBEDTRAIN ?= embedtrain
OUT        ?= build/demo
MODEL      ?= sentence-transformers/all-MiniLM-L6-v2
TUNED      ?= $(OUT)/tuned
BASELINE   ?=
GUARDS     ?=
STS        := recipes/data/stsb/sts-en-test.tsv.gz

REQUIREMENTS := \
    --require 'nDCG@10 >= 0.70' \
    --require 'Recall@100 >= 0.90' \
    --require 'vs base: nDCG@10 low >= -0.02' \
    --require 'guard: Spearman >= -0.005'

.PHONY: gate
gate:
	$(EMBEDTRAIN) eval $(OUT)/collection --model $(MODEL) --model $(TUNED) --guard-sts $(STS) $(GUARDS) $(REQUIREMENTS) \
	    $(if $(BASELINE),--baseline $(BASELINE) --max-drop 0.02) \
	    --junit $(OUT)/gate.xml --markdown $(OUT)/gate.md --out $(OUT)/gate
