//! The native code that the Go program links: the C functions of
//! github.com/daulet/tokenizers over Hugging Face's `tokenizers` crate, which are
//! the reference, and those of the fast engine.
//!
//! The source of the former is one file inside the Go module, so the Go and Rust
//! halves have the same version by construction. native.mk copies the file out
//! of the module cache and names the copy in WARMROUTE_DAULET_RS; it is not part
//! of this repository.

#[allow(warnings)]
mod daulet {
    include!(env!(
        "WARMROUTE_DAULET_RS",
        "build this crate with `make native`, which names the source file of daulet/tokenizers"
    ));
}

mod fast_engine;
