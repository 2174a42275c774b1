# The native tokenizer library, for the top Makefile to include.
#
#   make native    builds $(BUILD)/lib/libtokenizers.a (2 to 3 minutes of CPU, once)
#
# Whoever links it needs CGO_LDFLAGS=-L$(abspath $(BUILD)/lib).

BUILD ?= .build

NATIVE_LIB := $(BUILD)/lib/libtokenizers.a
NATIVE_CRATE := tokenize/native/rust

# The version is part of the copy's name: a new one in go.mod is a new file and
# so a new library.
DAULET_VERSION := $(shell awk '{ for (i = 1; i < NF; i++) if ($$i == "github.com/daulet/tokenizers") print $$(i + 1) }' go.mod)
DAULET_RS := $(BUILD)/native/daulet-$(DAULET_VERSION).rs

.PHONY: native
native: $(NATIVE_LIB) ## build the native tokenizer library

$(DAULET_RS):
	@mkdir -p $(@D)
	@go mod download github.com/daulet/tokenizers
	@cp "$$(go list -m -f '{{.Dir}}' github.com/daulet/tokenizers)/crates/tokenizers/src/lib.rs" $@.$$$$ && \
		chmod u+w $@.$$$$ && touch $@.$$$$ && mv $@.$$$$ $@

# daulet's cgo line asks for -lstdc++, though nothing here is C++: where the
# compiler has none, an empty archive satisfies the linker.
$(NATIVE_LIB): $(DAULET_RS) $(NATIVE_CRATE)/Cargo.toml $(NATIVE_CRATE)/Cargo.lock $(wildcard $(NATIVE_CRATE)/src/*.rs)
	@command -v cargo >/dev/null || { \
		echo "make native: cargo is missing. The exact tokenizer is a Rust library; install Rust 1.85 or newer" >&2; \
		echo "  (https://rustup.rs, or your distribution's cargo) and run make native again." >&2; exit 1; }
	@echo "==> native tokenizer library: compiling Rust, 2 to 5 minutes, once"
	@WARMROUTE_DAULET_RS=$(abspath $(DAULET_RS)) cargo build --quiet --release --locked \
		--manifest-path $(NATIVE_CRATE)/Cargo.toml --target-dir $(BUILD)/native/target
	@mkdir -p $(@D)
	@cc="$${CC:-cc}"; found="$$($$cc -print-file-name=libstdc++.so) $$($$cc -print-file-name=libstdc++.a)"; \
		case "$$found" in */*) rm -f $(@D)/libstdc++.a ;; *) ar rcs $(@D)/libstdc++.a ;; esac
	@cp $(BUILD)/native/target/release/libtokenizers.a $@.$$$$ && mv $@.$$$$ $@
