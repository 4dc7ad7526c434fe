//! Reading and writing, once with files in memory and once with files on a device whose blocks hold rubbish.

mod common;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use common::{Short, clock, name, new_node, user, volume, volume_on_device, with};
use obento_base::{Error, FileKind, Mode, Result};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{FileSystem, SetAttr, Size, Span, TimeChange};
use obento_tmpfs::Options;
use obento_vfs::{Atime, Caller, Config, OpenFlags, Vfs};

const OWNER: Caller = Caller::Owner;

fn on_both(test: impl Fn(Vfs)) {
    test(volume().1);
    test(volume_on_device().1);
}

#[test]
fn unwritten_bytes_are_zeros_wherever_a_file_grows() {
    on_both(|vfs| {
        let file = vfs.root().file("f");
        file.write_at(5000, b"abc").unwrap();
        let mut model = vec![0; 5000];
        model.extend(b"abc");
        assert_eq!(file.bytes(), model);
        // Beyond the end, in the same block and then in a later one.
        for at in [6000_usize, 20_001] {
            file.write_at(at as u64, b"xyz").unwrap();
            model.resize(at, 0);
            model.extend(b"xyz");
            assert_eq!(file.bytes(), model);
        }
        for size in [5001_usize, 9000, 8192, 30_000, 0, 10] {
            file.truncate(size as u64).unwrap();
            model.resize(size, 0);
            model.truncate(size);
            assert_eq!(file.bytes(), model, "size {size}");
        }
        // A hole before the last block is filled in its middle.
        file.truncate(40_000).unwrap();
        file.write_at(13_000, b"m").unwrap();
        model.resize(40_000, 0);
        model[13_000] = b'm';
        assert_eq!(file.bytes(), model);
    });
}

#[test]
fn an_overwrite_leaves_the_neighbouring_bytes_unchanged() {
    on_both(|vfs| {
        let file = vfs.root().file("f");
        let mut model: Vec<u8> = (0..10_000_u32).map(|n| n as u8).collect();
        file.write_at(0, &model).unwrap();
        for (at, len) in [(0, 1), (4095, 2), (100, 8000), (9_990, 30), (10_019, 5000)] {
            file.write_at(at as u64, &vec![7; len]).unwrap();
            model.resize(model.len().max(at + len), 0);
            model[at..at + len].fill(7);
            assert!(file.bytes() == model, "{len} bytes at {at}");
        }
    });
}

#[test]
fn a_punched_range_is_zeros_and_its_whole_blocks_are_holes() {
    on_both(|vfs| {
        let file = vfs.root().file("f");
        let mut model = vec![9; 30_000];
        file.write_at(0, &model).unwrap();
        for range in [100..200, 4000..13_000, 16_384..20_480, 25_000..99_999] {
            file.punch(range.clone()).unwrap();
            model[range.start as usize..(range.end as usize).min(30_000)].fill(0);
            assert!(file.bytes() == model, "{range:?}");
        }
        assert_eq!(file.seek_hole(0), Ok(4096));
        assert_eq!(file.seek_data(4096), Ok(12_288));
        assert_eq!(file.seek_hole(12_288), Ok(16_384));
        assert_eq!(file.seek_data(28_672), Err(Error::NoSuchOffset));
        assert_eq!(file.attr().unwrap().size, 30_000);
        file.punch(50_000..60_000).unwrap();
        file.truncate(60_000).unwrap();
        model.resize(60_000, 0);
        assert!(file.bytes() == model);
    });
}

/// A device that notes where each write begins and ends.
#[derive(Debug)]
struct Noted(MemDevice, Mutex<Vec<Range<u64>>>);

impl BlockDevice for Noted {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.1.lock().unwrap().push(offset..offset + buf.len() as u64);
        self.0.write_at(offset, buf)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// Or a power cut between two writes would leave a sector that is half of one time and half of another.
#[test]
fn zeros_over_the_border_of_two_blocks_are_written_sector_by_sector_and_none_in_two_parts() {
    for (start, end) in [(300, 7000), (4000, 8191), (1, 8000)] {
        let device = Arc::new(Noted(MemDevice::new(vec![0xdd; 4 << 20]), Mutex::default()));
        let (_, vfs) = with(Options { device: Some(device.clone()), ..Options::new(clock()) });
        let file = vfs.root().file("f");
        file.write_at(0, &[9; 12_288]).unwrap();
        device.1.lock().unwrap().clear();
        file.punch(start..end).unwrap();
        let mut ends: Vec<u64> = device.1.lock().unwrap().iter().map(|write| write.end).collect();
        ends.sort_unstable();
        assert_eq!(ends.pop().unwrap() % 512, end % 512);
        assert!(
            !ends.is_empty() && ends.iter().all(|end| end.is_multiple_of(512)),
            "{start}..{end}: {ends:?}"
        );
    }
}

#[test]
fn runs_distinguish_holes_from_data_and_end_with_the_file() {
    on_both(|vfs| {
        let file = vfs.root().file("f");
        file.write_at(8192, &[1; 5000]).unwrap();
        let run = file.run(100, u64::MAX).unwrap().unwrap();
        assert_eq!((run.span(), run.offset(), run.len()), (Span::Hole, 100, 8092));
        drop(run);
        let mut at = 8192;
        let mut bytes = vec![];
        while let Some(run) = file.run(at, u64::MAX).unwrap() {
            let mut part = vec![0; run.len() as usize];
            let len = run.read(0, &mut part).unwrap();
            bytes.extend(&part[..len]);
            at += len as u64;
        }
        assert_eq!((bytes, at), (vec![1; 5000], 13_192));
    });
}

#[test]
fn seeking_past_the_end_finds_nothing_and_the_end_is_a_hole() {
    on_both(|vfs| {
        let file = vfs.root().file("f");
        file.write_at(0, b"x").unwrap();
        assert_eq!((file.seek_data(0), file.seek_hole(0)), (Ok(0), Ok(1)));
        assert_eq!(
            (file.seek_data(1), file.seek_hole(1)),
            (Err(Error::NoSuchOffset), Err(Error::NoSuchOffset))
        );
    });
}

#[test]
fn other_files_than_regular_ones_have_no_bytes() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let fifo = vfs.create(&OWNER, &root, name("p"), &new_node(FileKind::Fifo, 0o600)).unwrap();
    assert_eq!(root.read_at(0, &mut [0; 4]), Err(Error::IsDirectory));
    assert_eq!(fifo.read_at(0, &mut [0; 4]), Err(Error::Invalid));
    assert_eq!(fifo.write_at(0, b"x"), Err(Error::Invalid));
    assert_eq!(root.truncate(0), Err(Error::IsDirectory));
}

#[test]
fn a_file_ends_where_the_format_says() {
    on_both(|vfs| {
        let file = vfs.root().file("f");
        let max = vfs.limits().file_size_max;
        assert_eq!(file.write_at(max, b"x"), Err(Error::FileTooBig));
        assert_eq!(file.write_at(max - 1, b"xy"), Ok(1));
        assert_eq!(file.attr().unwrap().size, max);
        assert_eq!(file.truncate(max + 1), Err(Error::FileTooBig));
        let mut buf = [0; 3];
        assert_eq!((file.read_at(max - 2, &mut buf), &buf[..2]), (Ok(2), &b"\0x"[..]));
    });
}

#[test]
fn a_write_without_space_returns_the_number_of_written_bytes() {
    let device = std::sync::Arc::new(obento_block::MemDevice::new(vec![0xdd; 8192]));
    let limited = Options { size: 8192, ..Options::new(clock()) };
    for options in [limited.clone(), Options { device: Some(device), ..limited }] {
        let (fs, vfs) = with(options);
        let file = vfs.root().file("f");
        assert_eq!(file.write_at(100, &[1; 20_000]), Ok(8092));
        assert_eq!(file.write_at(8192, &[1; 10]), Err(Error::NoSpace));
        assert_eq!(file.attr().unwrap().size, 8192);
        file.truncate(1).unwrap();
        assert_eq!(fs.statfs().unwrap().free, 1);
    }
}

#[test]
fn appends_on_many_threads_lose_nothing() {
    on_both(|vfs| {
        let node = vfs.root().file("f");
        std::thread::scope(|scope| {
            for letter in b'a'..b'e' {
                let file = vfs.open(&OWNER, &node, OpenFlags::WRITE | OpenFlags::APPEND).unwrap();
                scope.spawn(move || (0..500).for_each(|_| assert_eq!(file.write_at(0, &[letter; 7]), Ok(7))));
            }
        });
        let bytes = node.bytes();
        assert_eq!(bytes.len(), 4 * 500 * 7);
        assert!(bytes.chunks(7).all(|chunk| chunk.iter().all(|byte| byte == &chunk[0])));
    });
}

#[test]
fn an_open_file_supports_the_access_that_it_was_opened_for() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let node = root.file("f");
    node.write_at(0, b"old").unwrap();
    root.symlink("l", "f");
    let open = |flags| vfs.open(&OWNER, &node, flags);
    assert_eq!(open(OpenFlags::READ).unwrap().write_at(0, b"x"), Err(Error::BadHandle));
    assert_eq!(open(OpenFlags::WRITE).unwrap().read_at(0, &mut [0]), Err(Error::BadHandle));
    assert_eq!(open(OpenFlags::APPEND).err(), Some(Error::Invalid));
    assert_eq!(vfs.open(&OWNER, &root, OpenFlags::WRITE).err(), Some(Error::IsDirectory));
    assert_eq!(vfs.open(&OWNER, &root.get("l").unwrap(), OpenFlags::READ).err(), Some(Error::Loop));
    assert_eq!(vfs.open(&user(9, 9), &node, OpenFlags::WRITE).err(), Some(Error::AccessDenied));
    assert!(vfs.open(&user(9, 9), &node, OpenFlags::READ).is_ok());
    open(OpenFlags::WRITE | OpenFlags::TRUNCATE).unwrap();
    assert_eq!(node.attr().unwrap().size, 0);
}

#[test]
fn a_write_by_a_user_takes_set_user_id_from_the_file() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let node = vfs.create(&OWNER, &root, name("f"), &new_node(FileKind::Regular, 0o6777)).unwrap();
    vfs.open(&OWNER, &node, OpenFlags::WRITE).unwrap().write_at(0, b"x").unwrap();
    assert_eq!(node.attr().unwrap().mode, Mode::new(0o6777));
    vfs.open(&user(3, 3), &node, OpenFlags::WRITE).unwrap().write_at(0, b"x").unwrap();
    assert_eq!(node.attr().unwrap().mode, Mode::new(0o777));
}

#[test]
fn reading_sets_the_access_time_as_the_volume_is_configured() {
    use obento_base::Timestamp;
    let old = Timestamp::new(10, 0);
    let now = clock().now();
    let touched = |atime: Atime, mtime: Timestamp| {
        let fs = std::sync::Arc::new(obento_tmpfs::Tmpfs::new(Options::new(clock())));
        let vfs = Vfs::with(fs, Config { atime, clock: clock(), ..Config::default() });
        let node = vfs.root().file("f");
        let times = SetAttr {
            atime: Some(TimeChange::At(Timestamp::new(now.secs() - 60, 0))),
            mtime: Some(TimeChange::At(mtime)),
            ctime: Some(TimeChange::At(old)),
            ..SetAttr::default()
        };
        vfs.set_attr(&OWNER, &node, &times).unwrap();
        vfs.open(&OWNER, &node, OpenFlags::READ).unwrap().read_at(0, &mut [0]).unwrap();
        node.attr().unwrap().atime == now
    };
    assert!(!touched(Atime::Never, old));
    assert!(!touched(Atime::Relative, old), "read since the last change");
    assert!(touched(Atime::Relative, now), "changed since it was last read");
    assert!(touched(Atime::Always, old));
}

#[test]
fn allocating_and_zeroing_keep_every_other_byte_and_the_size_that_was_asked_for() {
    on_both(|vfs| {
        let file = vfs.root().file("f");
        let mut model = vec![9; 20_000];
        file.write_at(0, &model).unwrap();
        for range in [100..200_u64, 4000..13_000, 8192..12_288, 19_000..30_000] {
            file.zero_range(range.clone(), Size::Keep).unwrap();
            model[range.start as usize..(range.end as usize).min(20_000)].fill(0);
            assert!(file.bytes() == model, "{range:?}");
        }
        file.punch(0..20_000).unwrap();
        model.fill(0);
        let before = file.attr().unwrap().blocks;
        file.zero_range(100..13_000, Size::Keep).unwrap();
        assert_eq!(file.attr().unwrap().blocks - before, 4 * 4096 / 512, "parts of blocks get space");
        file.punch(0..20_000).unwrap();
        file.allocate(5000..50_000, Size::Keep).unwrap();
        assert_eq!(file.attr().unwrap().blocks, 12 * 4096 / 512);
        assert!(file.bytes() == model);
        for range in [30_000..30_001_u64, 30_001..30_002, 50_000..60_000] {
            file.zero_range(range.clone(), Size::Grow).unwrap();
            model.resize(range.end as usize, 0);
            assert!(file.bytes() == model, "{range:?}");
        }
        file.allocate(0..70_000, Size::Grow).unwrap();
        model.resize(70_000, 0);
        file.write_at(33_333, b"x").unwrap();
        model[33_333] = b'x';
        assert!(file.bytes() == model);
        assert_eq!(file.allocate(5..5, Size::Keep), Err(Error::Invalid));
    });
}

#[test]
fn collapsing_takes_blocks_out_of_a_file_and_inserting_puts_a_hole_in() {
    on_both(|vfs| {
        let file = vfs.root().file("f");
        let mut model: Vec<u8> = (0..30_000_u32).map(|n| (n / 9) as u8).collect();
        file.write_at(0, &model).unwrap();
        file.collapse(4096..12_288).unwrap();
        model.drain(4096..12_288);
        assert!(file.bytes() == model);
        file.insert(8192..12_288).unwrap();
        model.splice(8192..8192, [0; 4096]);
        assert!(file.bytes() == model);
        let size = model.len() as u64;
        for range in [1..4096, 0..4095, 4096..4096, 4096..40_960] {
            assert_eq!(file.collapse(range), Err(Error::Invalid));
        }
        assert_eq!(file.insert(size.next_multiple_of(4096)..65_536), Err(Error::Invalid));
        assert!(file.bytes() == model);
    });
}

#[test]
fn a_closed_volume_reads_and_takes_no_change() {
    let vfs = volume().1;
    let file = vfs.root().file("f");
    file.write_at(0, b"abc").unwrap();
    vfs.close().unwrap();
    assert_eq!((file.bytes(), file.write_at(0, b"x")), (b"abc".to_vec(), Err(Error::ReadOnly)));
}
