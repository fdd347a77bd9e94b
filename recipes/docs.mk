# From a folder of Markdown to a tuned model and a report, without one label; minutes on 2 cores.
#
#   make -f recipes/docs.mk                          the documentation of Hugo, which ships with this project
#   make -f recipes/docs.mk SOURCE=docs/ OUT=build/mine
#
# Titles, descriptions and headings are the queries, what stands under them the documents. A tenth of them is set apart,
# by whole pages, to measure on: it says whether headings find their sections, which is not yet whether people find
# theirs. Collect some real questions, judge them, and measure on those.

EMBEDTRAIN ?= embedtrain
SOURCE     ?= recipes/data/hugo-docs/content-md.tar.gz
OUT        ?= build/docs
MODEL      ?= sentence-transformers/all-MiniLM-L6-v2

.PHONY: docs
docs:
	@# A heading that does not bring its section near the top ("Example") teaches nothing.
	$(EMBEDTRAIN) harvest $(SOURCE) --split dev=0.1 --consistency $(MODEL) --dropped $(OUT)/dropped.jsonl --out $(OUT)/collection
	$(EMBEDTRAIN) pretrain $(OUT)/collection --model $(MODEL) --out $(OUT)/tuned
	$(EMBEDTRAIN) eval $(OUT)/collection --split dev --bm25 --model $(MODEL) --model $(OUT)/tuned --hybrid --out $(OUT)/results
	$(EMBEDTRAIN) diagnose $(OUT)/tuned --collection $(OUT)/collection --split dev --against $(MODEL) \
	    --eval $(OUT)/results --out $(OUT)/report
	@$(EMBEDTRAIN) inspect $(OUT)/results
	@echo "The report: $(OUT)/report/report.html"
