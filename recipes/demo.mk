# The whole story once, small: a part of SciFact, a small model, a few minutes on 2 CPU cores.
#
# This is the small twin of scifact.mk: 700 of 5,183 documents and 200 queries a split, short texts in training,
# one epoch. Its numbers show that the pipeline works, not how good a model can become; fewer documents make every
# ranking look better than on the whole corpus.
#
# Every command answers "up to date" when its inputs and options have not changed, so all of them are simply run.

EMBEDTRAIN ?= embedtrain
DATA       ?= recipes/data
OUT        ?= build/demo
MODEL      ?= sentence-transformers/all-MiniLM-L6-v2

LENGTHS := --max-document-length 96 --max-query-length 48

.PHONY: demo
demo:
	@echo "A small part of SciFact: 700 of 5,183 documents, 200 queries a split. The full benchmark: make scifact"
	$(EMBEDTRAIN) harvest $(DATA)/scifact --documents 700 --limit 200 --out $(OUT)/collection
	$(EMBEDTRAIN) mine $(OUT)/collection --model $(MODEL) --negatives 4 --out $(OUT)/mined.parquet
	$(EMBEDTRAIN) train-teacher $(OUT)/mined.parquet --model $(MODEL) --max-length 96 --negatives 4 --epochs 1 --out $(OUT)/teacher
	@# So small a teacher is worse than the retriever: what it says is shown, and nothing is dropped on its word.
	$(EMBEDTRAIN) score-teacher $(OUT)/mined.parquet --teacher $(OUT)/teacher --trust --policy keep --out $(OUT)/scored.parquet
	$(EMBEDTRAIN) harvest $(OUT)/collection --kind titles --out $(OUT)/pairs
	$(EMBEDTRAIN) pretrain $(OUT)/pairs --model $(MODEL) $(LENGTHS) --limit 300 --out $(OUT)/pretrained
	$(EMBEDTRAIN) finetune $(OUT)/scored.parquet --model $(OUT)/pretrained $(LENGTHS) --loss infonce --negatives 2 --temperature 0.05 \
	    --learning-rate 2e-5 --epochs 1 --out $(OUT)/tuned
	$(EMBEDTRAIN) eval $(OUT)/collection --bm25 --model $(MODEL) --model $(OUT)/tuned --hybrid --out $(OUT)/results
	$(EMBEDTRAIN) diagnose $(OUT)/tuned --collection $(OUT)/collection --against $(MODEL) --sample 700 \
	    --eval $(OUT)/results --out $(OUT)/report
	@# The table once more, with where it comes from.
	@$(EMBEDTRAIN) inspect $(OUT)/results
	@echo "The report: $(OUT)/report/report.html"
