#![no_main]
use libfuzzer_sys::fuzz_target;
use obento::partition::Table;
use obento_block::MemDevice;

// Two sectors at the front, two at the back, and zeros between: enough for every header and its backup.
fuzz_target!(|data: &[u8]| {
    let mut disk = vec![0; 64 * 512];
    let (front, back) = data.split_at(data.len().min(8 * 512));
    disk[..front.len()].copy_from_slice(front);
    let back = &back[..back.len().min(8 * 512)];
    let start = disk.len() - back.len();
    disk[start..].copy_from_slice(back);
    let _ = Table::read(&MemDevice::read_only(disk));
});
