//! First bytes of disk images, which users bring.
//!
//! Input: the length of the image (8 bytes), then its beginning.
#![no_main]

use ferrovirt_storage::image::{HEAD, MAX_VIRTUAL_SIZE, inspect};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((length, head)) = input.split_first_chunk() else { return };
    let head = &head[..head.len().min(HEAD)];
    if let Ok(image) = inspect(head, u64::from_le_bytes(*length)) {
        assert!(image.virtual_size > 0 && image.virtual_size <= MAX_VIRTUAL_SIZE);
    }
});
