//! The data that the kernel gathers in its page cache for one mount.
//!
//! Linux limits FUSE mounts strictly: a mount gathers `max_ratio` percent (1 by default) of the data that the whole
//! system may gather. Without the strict limit, it gathers as much as the whole system may.
//! Source: Linux fs/fuse/inode.c `fuse_bdi_init`; Documentation/ABI/testing/sysfs-class-bdi.

use std::fs;

/// The part of memory that a mount gathers by default: 1 % of `vm.dirty_ratio` (20 %).
const PART_OF_MEMORY: u64 = 500;

/// Returns the number of bytes that the kernel gathers at most for the FUSE mount with the number `device`. The kernel's limit grows when other programs free memory, so it counts as if all memory were available.
pub fn dirty_limit(device: &str) -> u64 {
    let number = |name: &str| {
        let text = fs::read_to_string(format!("/sys/class/bdi/{device}/{name}")).ok()?;
        text.trim().parse().ok()
    };
    let reported = limit(number("max_bytes"), number("max_ratio"), number("strict_limit"));
    let info = rustix::system::sysinfo();
    let memory = info.totalram.saturating_mul(info.mem_unit.into());
    reported.unwrap_or_default().max(memory.checked_div(PART_OF_MEMORY).unwrap_or_default())
}

/// Returns the limit that follows from the files of these names. Linux before 6.2 has no `max_bytes`.
fn limit(max_bytes: Option<u64>, max_ratio: Option<u64>, strict: Option<u64>) -> Option<u64> {
    let bytes = max_bytes?;
    match (strict, max_ratio) {
        (Some(0), Some(ratio)) => bytes.saturating_mul(100).checked_div(ratio),
        _ => Some(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_without_a_strict_limit_gathers_as_much_as_the_system() {
        assert_eq!(limit(Some(44_000_000), Some(1), Some(1)), Some(44_000_000));
        assert_eq!(limit(Some(44_000_000), Some(1), Some(0)), Some(4_400_000_000));
        assert_eq!(limit(Some(44_000_000), Some(0), Some(0)), None);
        assert_eq!(limit(None, Some(1), None), None);
    }

    #[test]
    fn a_device_that_is_not_mounted_has_a_limit_by_memory() {
        assert!(dirty_limit("0:0") > 0);
    }
}
