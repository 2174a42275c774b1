//! The fast engine: byte-level BPE by release candidate 1.0 of `tokenizers`,
//! behind five C functions. Text and ids cross the border as pointer and length,
//! every call answers a status, and a panic is a status too.
//!
//! That release looks words up by hashes alone: a word is found when 32 bits of
//! its hash equal those of a vocabulary entry, and cached under 64 bits. A text
//! with the wrong word would get the wrong ids. So the ids are turned back into
//! bytes, which must be the text; where they are not the caller asks the
//! reference.

use fast::pipeline::{EncodeOptions, Override, PipelineToken, PipelineTokenizer};
use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

const OK: i32 = 0;
/// The buffer is too short; the length says what it takes.
const SHORT: i32 = 1;
/// The ids do not spell the text.
const DIFFERS: i32 = 2;
const ERROR: i32 = -1;
const PANIC: i32 = -2;

pub struct Fast {
    tokenizer: PipelineTokenizer,
    /// The bytes of every token: token i is bytes[ends[i-1]..ends[i]].
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

/// What of a tokenizer.json says how tokens are spelled.
#[derive(serde::Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    model: Model,
}

#[derive(serde::Deserialize)]
struct Added {
    id: u32,
    content: String,
}

#[derive(serde::Deserialize)]
struct Model {
    vocab: HashMap<String, u32>,
}

/// A vocabulary has at most this many ids; a file that claims more is refused,
/// for the table of spellings is as long as the largest one.
const MAX_ID: u32 = 1 << 24;

impl Fast {
    fn load(json: &str) -> Result<Fast, String> {
        let canonical = fast::canonicalize_str(json).map_err(|e| e.to_string())?;
        let tokenizer = fast::from_json(&canonical).map_err(|e| e.to_string())?;
        let file: File = serde_json::from_str(json).map_err(|e| e.to_string())?;
        let letters = byte_letters();
        let mut spelled: Vec<Option<Vec<u8>>> = Vec::new();
        let mut set = |id: u32, text: Vec<u8>| {
            if id >= MAX_ID {
                return Err(format!("token id {id}"));
            }
            if spelled.len() <= id as usize {
                spelled.resize(id as usize + 1, None);
            }
            spelled[id as usize] = Some(text);
            Ok(())
        };
        for (token, id) in &file.model.vocab {
            // A token with a letter that stands for no byte spells nothing: found in
            // a text it shows as a difference.
            let text = token.chars().map(|c| letters.get(&c).copied()).collect::<Option<Vec<u8>>>();
            set(*id, text.unwrap_or_default())?;
        }
        for added in file.added_tokens {
            set(added.id, added.content.into_bytes())?;
        }
        let mut f = Fast { tokenizer, bytes: Vec::new(), ends: Vec::with_capacity(spelled.len()) };
        for text in spelled {
            f.bytes.extend_from_slice(&text.unwrap_or_default());
            f.ends.push(f.bytes.len() as u32);
        }
        Ok(f)
    }

    fn encode(&self, text: &str, special: bool, ids: &mut Vec<PipelineToken>) -> Result<(), String> {
        let options = EncodeOptions {
            add_special_tokens: special,
            encode_special_tokens: false,
            padding: Override::Off,
            truncation: Override::Off,
        };
        self.tokenizer.encode_into(text, &options, ids).map_err(|e| e.to_string())
    }

    fn spells(&self, ids: &[u32], text: &[u8]) -> bool {
        let mut rest = text;
        for &id in ids {
            let id = id as usize;
            let Some(&end) = self.ends.get(id) else { return false };
            let start = if id == 0 { 0 } else { self.ends[id - 1] };
            match rest.strip_prefix(&self.bytes[start as usize..end as usize]) {
                Some(after) if start < end => rest = after,
                _ => return false,
            }
        }
        rest.is_empty()
    }
}

/// The letters by which byte-level vocabularies write bytes: printable ones stand
/// for themselves, the others are numbered from U+0100 on.
fn byte_letters() -> HashMap<char, u8> {
    let mut letters = HashMap::new();
    let mut next = 0x100;
    for b in 0..=255u8 {
        let printable = matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let code = if printable { b as u32 } else { next };
        if !printable {
            next += 1;
        }
        letters.insert(char::from_u32(code).expect("a letter below U+0200"), b);
    }
    letters
}

thread_local! {
    static IDS: RefCell<Vec<PipelineToken>> = const { RefCell::new(Vec::new()) };
}

/// The largest buffer of ids that a thread keeps.
const KEPT: usize = 1 << 18;

/// Loads a tokenizer.json. On ERROR its message, cut to fit, is in err.
///
/// # Safety
/// json and err must be readable and writable for their lengths, out writable.
#[no_mangle]
pub unsafe extern "C" fn warmroute_fast_load(
    json: *const u8, len: usize, out: *mut *mut Fast, err: *mut u8, err_len: *mut usize,
) -> i32 {
    let loaded = catch_unwind(|| {
        let json = std::str::from_utf8(slice::from_raw_parts(json, len)).map_err(|e| e.to_string())?;
        Fast::load(json)
    });
    match loaded {
        Ok(Ok(f)) => {
            *out = Box::into_raw(Box::new(f));
            OK
        }
        Ok(Err(message)) => {
            let n = message.len().min(*err_len);
            std::ptr::copy_nonoverlapping(message.as_ptr(), err, n);
            *err_len = n;
            ERROR
        }
        Err(_) => PANIC,
    }
}

/// Frees a tokenizer that no call uses any more.
///
/// # Safety
/// f must come from warmroute_fast_load, and not be used again.
#[no_mangle]
pub unsafe extern "C" fn warmroute_fast_free(f: *mut Fast) {
    drop(Box::from_raw(f));
}

/// Encodes text, which must be UTF-8, into ids of capacity *n, and sets *n to
/// their number. With special, what the tokenizer puts around a text is there and
/// the spelling is not checked.
///
/// # Safety
/// text and ids must be readable and writable for their lengths, n writable.
#[no_mangle]
pub unsafe extern "C" fn warmroute_fast_encode(
    f: *const Fast, text: *const u8, len: usize, special: bool, ids: *mut u32, n: *mut usize,
) -> i32 {
    let encoded = catch_unwind(AssertUnwindSafe(|| {
        let text = std::str::from_utf8_unchecked(slice::from_raw_parts(text, len));
        IDS.with_borrow_mut(|buffer| {
            buffer.clear();
            let status = match (*f).encode(text, special, buffer) {
                Err(_) => ERROR,
                Ok(()) => {
                    let found = PipelineToken::cast_slice(buffer);
                    let room = std::mem::replace(&mut *n, found.len());
                    if !special && !(*f).spells(found, text.as_bytes()) {
                        DIFFERS
                    } else if found.len() > room {
                        SHORT
                    } else {
                        std::ptr::copy_nonoverlapping(found.as_ptr(), ids, found.len());
                        OK
                    }
                }
            };
            if buffer.capacity() > KEPT {
                *buffer = Vec::new();
            }
            status
        })
    }));
    encoded.unwrap_or(PANIC)
}
