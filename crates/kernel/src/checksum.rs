//! The checksums of the kernel, which may use instructions that a driver may not.

unsafe extern "C" {
    fn ob_has_crc32c() -> bool;
    fn ob_crc32c(seed: u32, at: *const u8, len: usize) -> u32;
}

fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    // SAFETY: the bytes live until the end of the call.
    unsafe { ob_crc32c(seed, bytes.as_ptr(), bytes.len()) }
}

/// Makes the drivers use the checksums of the kernel.
pub(crate) fn provide() {
    // SAFETY: the call has no arguments.
    if unsafe { ob_has_crc32c() } {
        obento_base::crc::provide_crc32c(crc32c);
    }
}
