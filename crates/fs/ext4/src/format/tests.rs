use alloc::string::ToString;
use alloc::sync::Arc;
use std::vec;
use std::vec::Vec;

use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Contents, Driver as _, Format, FormatError, FormatNotice, FormatOptions, OpenOptions};
use obento_env::{FixedRandom, NO_CLOCK};

use crate::Ext4Driver;

fn options(fs_type: &str, settings: &[(&str, &str)]) -> FormatOptions {
    let mut options = FormatOptions::new(fs_type, Arc::new(NO_CLOCK), Arc::new(FixedRandom(1)));
    options.settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    options
}

fn fact(device_len: u64, options: &FormatOptions, name: &str) -> u64 {
    let planned = Ext4Driver.plan(device_len, options).unwrap();
    let fact = planned.facts.iter().find(|fact| fact.name == name).unwrap();
    fact.value.parse().unwrap()
}

#[test]
fn inodes_fill_whole_blocks_of_their_tables() {
    let of = |inodes| fact(1 << 30, &options("ext4", &[("inodes", inodes)]), "inodes per group");
    assert_eq!([of("1"), of("128"), of("129"), of("4096"), of("65536")], [16, 16, 32, 512, 8192]);
}

#[test]
fn a_last_group_without_room_for_its_tables_is_left_out() {
    let planned = |blocks: u64| {
        let mut options = options("ext2", &[]);
        options.block_size = Some(1024);
        options.len = Some(blocks * 1024);
        Ext4Driver.plan(1 << 40, &options).map(|made| (made.blocks, made.notices))
    };
    assert_eq!(planned(8193 + 100), Ok((8193, vec![FormatNotice::Unused(100)])));
    assert_eq!(planned(8193 + 4000), Ok((8193 + 4000, Vec::new())));
}

#[test]
fn volumes_too_small_or_too_large_are_refused_with_their_size() {
    let plan = |fs_type: &str, len: u64| Ext4Driver.plan(len, &options(fs_type, &[])).map(drop);
    assert!(matches!(plan("ext4", 0), Err(FormatError::TooSmall { .. })));
    assert!(matches!(plan("ext2", 64 << 10), Err(FormatError::TooSmall { .. })));
    assert!(matches!(plan("ext2", 17 << 40), Err(FormatError::TooLarge { .. })));
    // Not even 8 inodes per group fit into 32 bits.
    assert!(matches!(plan("ext4", 99_999 << 40), Err(FormatError::TooLarge { .. })));
    let mut longer = options("ext4", &[]);
    longer.len = Some(1 << 21);
    let past = FormatError::PastDevice { len: 1 << 21, device_len: 1 << 20 };
    assert_eq!(Ext4Driver.plan(1 << 20, &longer), Err(past));
}

#[test]
fn a_tebibyte_is_planned_in_little_memory_and_no_time() {
    let planned = Ext4Driver.plan(1 << 40, &options("ext4", &[])).unwrap();
    assert_eq!((planned.blocks, planned.inodes, planned.journal_blocks), (1 << 28, 1 << 26, 1 << 18));
    assert_eq!(planned.backups.len(), 18);
}

#[test]
fn the_same_options_make_the_same_bytes_and_another_seed_others() {
    let make = |seed| {
        let device = MemDevice::new(vec![0; 4 << 20]);
        let mut options = options("ext4", &[]);
        options.random = Arc::new(FixedRandom(seed));
        options.contents = Contents::Zeros;
        Format::format(&Ext4Driver, &device, &options).unwrap();
        device.snapshot()
    };
    assert!(make(1) == make(1) && make(1) != make(2));
}

#[test]
fn no_earlier_contents_are_visible() {
    let make = |old: u8, contents| {
        let device = MemDevice::new(vec![old; 4 << 20]);
        let options = FormatOptions { contents, ..options("ext4", &[("lazy_itable_init", "0")]) };
        Format::format(&Ext4Driver, &device, &options).unwrap();
        let open = OpenOptions::new(Arc::new(NO_CLOCK));
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        let volume = Ext4Driver.open(device, &open).unwrap();
        let mut names = Vec::new();
        volume
            .read_dir(volume.root(), obento_driver::Cookie::START, &mut |entry| {
                names.push(entry.unwrap().name.to_buf());
                core::ops::ControlFlow::Continue(())
            })
            .unwrap();
        names
    };
    let clean = make(0, Contents::Zeros);
    assert_eq!(clean.len(), 1);
    assert_eq!(make(0xff, Contents::Unknown), clean);
    assert_eq!(make(0xff, Contents::Preserved), clean);
}
