//! Changing volumes through the layer above: obento and a second implementation read the result, and `fsck.exfat`
//! finds nothing, whenever the power fails.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{FORMAT, judge, open_bytes, open_image, open_to_write, oracles, shape};
use obento_base::{Error, FileKind};
use obento_block::MemDevice;
use obento_driver::RenameFlags;
use obento_exfat::check::issues;
use obento_testkit::changes::{close, create, name, read, resolve, walk};
use obento_testkit::second;
use obento_vfs::Vfs;

fn random_changes(shape_name: &str, seed: u64) {
    FORMAT.random_changes(shape_name, seed, |_| {});
}

#[test]
fn random_changes_with_clusters_of_a_sector_leave_what_a_model_says() {
    (0..4).for_each(|n| random_changes("sector", 100 + 10 * n));
}

#[test]
fn random_changes_with_clusters_of_a_page_leave_what_a_model_says() {
    (0..4).for_each(|n| random_changes("page", 200 + 10 * n));
}

#[test]
fn random_changes_with_clusters_of_many_pages_leave_what_a_model_says() {
    random_changes("pages", 300);
}

#[test]
fn random_changes_with_a_packed_bitmap_leave_what_a_model_says() {
    random_changes("packed", 400);
}

#[test]
fn a_cut_after_any_write_with_clusters_of_a_sector_leaves_lost_clusters_at_worst() {
    (0..4).for_each(|seed| FORMAT.random_cuts("sector", 1000 + seed));
}

#[test]
fn a_cut_after_any_write_with_clusters_of_a_page_leaves_lost_clusters_at_worst() {
    (0..4).for_each(|seed| FORMAT.random_cuts("page", 2000 + seed));
}

#[test]
fn a_volume_is_marked_while_it_is_changed_and_only_then() {
    FORMAT.marks("page");
}

#[test]
fn a_file_in_the_clusters_of_a_removed_directory_keeps_its_data() {
    for shape_name in ["sector", "page", "pages", "packed"] {
        FORMAT.reuses_directories(shape_name);
    }
}

#[test]
fn values_that_the_format_cannot_store_are_refused() {
    FORMAT.refuses("page");
}

#[test]
fn no_stale_bytes_are_read_after_the_written_ones() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for shape_name in ["sector", "page", "pages"] {
        let image = shape(shape_name).make(folder.path());
        let mut bytes = std::fs::read(&image).unwrap();
        let fs = open_bytes(&bytes).unwrap();
        // All free space contains arbitrary bytes.
        let used = fs.statfs().unwrap();
        let start = bytes.len() - ((used.free - 8) * u64::from(used.block_size)) as usize;
        bytes[start..].fill(0xee);
        std::fs::write(&image, &bytes).unwrap();
        let fs = open_to_write(&image);
        let vfs = Vfs::new(fs.clone());
        let ino = create(&*fs, fs.root(), "f", FileKind::Regular).unwrap();
        let file = vfs.node(ino).unwrap();
        let mut expected = vec![0; 200_000];
        for (offset, len) in [(0, 10), (5000, 3), (100_000, 7000), (20_000, 1)] {
            file.write_at(offset as u64, &vec![b'x'; len]).unwrap();
            expected[offset..offset + len].fill(b'x');
        }
        file.truncate(150_000).unwrap();
        file.truncate(103_000).unwrap();
        expected[103_000..].fill(0);
        file.truncate(200_000).unwrap();
        file.write_at(199_999, b"y").unwrap();
        expected[199_999] = b'y';
        assert!(read(&*fs, ino, 200_000).unwrap() == expected, "{shape_name}");
        close(&*fs);
        judge(&image);
        let fs = open_image(&image);
        assert!(read(&*fs, resolve(&*fs, "/f").unwrap(), 200_000).unwrap() == expected, "{shape_name}");
    }
}

#[test]
fn contiguous_files_stay_contiguous_and_others_become_chains() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape("page").make(folder.path());
    let fs = open_to_write(&image);
    let vfs = Vfs::new(fs.clone());
    let [a, b] = ["a", "b"].map(|text| create(&*fs, fs.root(), text, FileKind::Regular).unwrap());
    for round in 0..10_u64 {
        vfs.node(a).unwrap().write_at(round * 4096, &[b'a'; 4096]).unwrap();
    }
    fs.writable().unwrap().sync().unwrap();
    let flags = |image: &Path, name: &str| {
        let bytes = std::fs::read(image).unwrap();
        let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let at =
            (0..bytes.len()).step_by(32).find(|&at| bytes[at] == 0xc1 && bytes[at + 2..].starts_with(&units));
        bytes[at.unwrap() - 31]
    };
    assert_eq!(flags(&image, "a"), 3, "contiguous");
    vfs.node(b).unwrap().write_at(0, &[b'b'; 4096]).unwrap();
    vfs.node(a).unwrap().write_at(40_960, &[b'a'; 8192]).unwrap();
    close(&*fs);
    assert_eq!((flags(&image, "a"), flags(&image, "b")), (1, 3), "a chain, and contiguous");
    judge(&image);
    let fs = open_image(&image);
    assert!(read(&*fs, resolve(&*fs, "/a").unwrap(), 49_152).unwrap() == [b'a'; 49_152]);
}

/// Adds a vendor entry after the name `name`, the last file of its directory.
fn add_vendor_entry(image: &Path, name: &str, body: u8) {
    let mut bytes = std::fs::read(image).unwrap();
    let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let is_it = |at: &usize| {
        bytes[*at] == 0x85
            && bytes[at + 35] as usize * 2 == units.len()
            && bytes[at + 66..].starts_with(&units)
    };
    let at = (0..bytes.len() - 128).step_by(32).find(is_it).unwrap();
    let end = at + 32 * (usize::from(bytes[at + 1]) + 1);
    assert_eq!(bytes[end], 0, "nothing follows");
    bytes[end..end + 32].fill(body);
    // With neither clusters nor a chain.
    (bytes[end], bytes[end + 1], bytes[at + 1]) = (0xe0, 0, bytes[at + 1] + 1);
    let summed = bytes[at..end + 32].iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
    let sum = summed.fold(0, |sum: u16, (_, &byte)| sum.rotate_right(1).wrapping_add(byte.into()));
    bytes[at + 2..at + 4].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(image, bytes).unwrap();
}

#[test]
fn a_vendors_entry_goes_with_its_file_when_two_are_exchanged_and_when_one_replaces_another() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape("sector").make(folder.path());
    let fs = open_to_write(&image);
    create(&*fs, fs.root(), "d", FileKind::Directory).unwrap();
    let file = create(&*fs, fs.root(), "mine", FileKind::Regular).unwrap();
    Vfs::new(fs.clone()).node(file).unwrap().write_at(0, b"mine").unwrap();
    close(&*fs);
    add_vendor_entry(&image, "mine", 0x77);
    // `fsck.exfat` 1.2.0 accepts no entries after a name.
    let faults =
        |image: &Path| issues(Arc::new(MemDevice::read_only(std::fs::read(image).unwrap()))).unwrap();
    let vendors = |image: &Path| {
        let bytes = std::fs::read(image).unwrap();
        (0..bytes.len()).step_by(32).filter(|&at| bytes[at..].starts_with(&[0xe0, 0, 0x77])).count()
    };
    let fs = open_to_write(&image);
    let (root, dir) = (fs.root(), resolve(&*fs, "/d").unwrap());
    let other = create(&*fs, dir, "a name of more than fifteen units", FileKind::Regular).unwrap();
    Vfs::new(fs.clone()).node(other).unwrap().write_at(0, b"other").unwrap();
    let mine = resolve(&*fs, "/mine").unwrap();
    let long = name("a name of more than fifteen units");
    let writable = fs.writable().unwrap();
    writable.rename(root, name("mine"), dir, long, RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs.lookup(dir, long), fs.lookup(root, name("mine"))), (Ok(mine), Ok(other)));
    close(&*fs);
    assert_eq!((vendors(&image), faults(&image)), (1, vec![]));
    let fs = open_image(&image);
    let of = |path: &str, len| read(&*fs, resolve(&*fs, path).unwrap(), len).unwrap();
    assert_eq!(
        (of("/d/a name of more than fifteen units", 4), of("/mine", 5)),
        (b"mine".to_vec(), b"other".to_vec())
    );
    // Back over the file that replaced it.
    let fs = open_to_write(&image);
    let dir = resolve(&*fs, "/d").unwrap();
    fs.writable().unwrap().rename(dir, long, fs.root(), name("mine"), RenameFlags::empty()).unwrap();
    assert_eq!(fs.lookup(dir, long), Err(Error::NotFound));
    close(&*fs);
    assert_eq!((vendors(&image), faults(&image)), (1, vec![]));
    let fs = open_image(&image);
    assert_eq!(read(&*fs, resolve(&*fs, "/mine").unwrap(), 4).unwrap(), b"mine");
}

#[test]
fn another_implementation_reads_our_output_and_we_read_its() {
    if !oracles() || !second::has_exfat() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for shape_name in ["sector", "page", "pages", "packed"] {
        let image = shape(shape_name).filled(folder.path());
        let expected = walk(&*open_image(&image));
        second::exfat(&image, 0, "rw", |at| {
            for (path, (attr, bytes)) in &expected {
                let there = at.join(&path[1..]);
                let meta = std::fs::metadata(&there).unwrap_or_else(|error| panic!("{path}: {error}"));
                assert_eq!(meta.is_dir(), attr.kind == FileKind::Directory, "{path}");
                if meta.is_file() {
                    assert!(std::fs::read(&there).unwrap() == *bytes, "{path}");
                }
            }
            std::fs::create_dir(at.join("theirs")).unwrap();
            for n in 0..40 {
                let body = vec![n as u8; 3000 * n];
                std::fs::write(at.join(format!("theirs/a name of some length {n}")), body).unwrap();
            }
            std::fs::remove_dir_all(at.join("many")).unwrap();
        });
        let fs = open_image(&image);
        for n in 0..40_usize {
            let ino = resolve(&*fs, &format!("/theirs/A NAME OF SOME LENGTH {n}")).unwrap();
            assert!(read(&*fs, ino, 3000 * n as u64).unwrap() == vec![n as u8; 3000 * n], "{n}");
        }
        assert_eq!(resolve(&*fs, "/many"), Err(Error::NotFound));
    }
}
