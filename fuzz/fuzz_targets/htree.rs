#![no_main]
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use obento_ext4::InodeFlags;
use obento_fuzz::{Places, damage, directory_blocks};

/// The root of every index; the nodes below it are found by the fuzzer through `directory`.
static ROOTS: LazyLock<Places> =
    LazyLock::new(|| directory_blocks(|inode, at| at == 0 && inode.has(InodeFlags::INDEX)));

fuzz_target!(|data: &[u8]| damage(&ROOTS, data));
