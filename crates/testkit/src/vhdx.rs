//! VHDX images in a state that no program leaves on purpose.

use obento_base::crc::crc32c;

/// Returns `after` with its tables as in `before` and with a log whose changes were not applied. A VHDX is in this
/// state when its writer ends between the two. Source: \[MS-VHDX\] 2.3.
pub fn unreplayed(before: &[u8], after: &[u8]) -> Vec<u8> {
    const LOG: usize = 1 << 20;
    const SECTOR: usize = 4096;
    // The log has entries of earlier writers, too.
    let is_new = |at: usize| before[at..at + SECTOR] != after[at..at + SECTOR];
    let is_entry = |&at: &usize| after[at..].starts_with(b"loge") && is_new(at);
    let entries: Vec<usize> = (LOG..2 * LOG).step_by(SECTOR).filter(is_entry).collect();
    let mut image = after.to_vec();
    for &entry in &entries {
        let count = u32::from_le_bytes(after[entry + 24..entry + 28].try_into().unwrap());
        for descriptor in after[entry + 64..].chunks(32).zip(0..count).map(|(bytes, _)| bytes) {
            let at = u64::from_le_bytes(descriptor[16..24].try_into().unwrap());
            let at = usize::try_from(at).unwrap();
            image[at..at + SECTOR].copy_from_slice(&before[at..at + SECTOR]);
        }
    }
    let last = entries.last().expect("the log has an entry");
    for header in [64 << 10, 128 << 10] {
        let bytes = &mut image[header..header + SECTOR];
        bytes[48..64].copy_from_slice(&after[last + 32..last + 48]);
        bytes[4..8].fill(0);
        let sum = !crc32c(!0, bytes);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    image
}
