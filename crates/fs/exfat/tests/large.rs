//! Large objects, all of them sparse: a directory with 60,000 names, a file of more than 4 GiB, a volume of 2 TiB.

mod common;

use std::fs::File;
use std::sync::Arc;

use common::{judge, oracles};
use obento_base::FileKind;
use obento_driver::{Contents, Format, FormatOptions, LayoutLock, Span};
use obento_env::{FixedRandom, NO_CLOCK};
use obento_exfat::ExFatDriver;
use obento_host::FileDevice;
use obento_testkit::changes::{close, create, name, resolve};
use obento_vfs::Vfs;

fn make(image: &std::path::Path, len: u64) {
    File::create(image).and_then(|file| file.set_len(len)).unwrap();
    let options = FormatOptions::new("exfat", Arc::new(NO_CLOCK), Arc::new(FixedRandom(7)));
    let options = FormatOptions { contents: Contents::Zeros, ..options };
    Format::format(&ExFatDriver::default(), &FileDevice::open_writable(image).unwrap(), &options).unwrap();
}

#[test]
fn a_directory_holds_sixty_thousand_names() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    make(&image, 200 << 20);
    let fs = common::open_to_write(&image);
    let dir = create(&*fs, fs.root(), "many", FileKind::Directory).unwrap();
    for n in 0..60_000 {
        create(&*fs, dir, &format!("a name of some length {n}"), FileKind::Regular).unwrap();
    }
    for n in (0..60_000).step_by(3) {
        let file = format!("A NAME OF SOME LENGTH {n}");
        let ino = fs.lookup(dir, name(&file)).unwrap();
        fs.writable().unwrap().unlink(dir, name(&file)).unwrap();
        fs.forget(ino);
    }
    // They take the places of the removed ones.
    let len = fs.getattr(dir).unwrap().size;
    for n in 0..19_000 {
        create(&*fs, dir, &format!("another name as long {n}"), FileKind::Regular).unwrap();
    }
    assert_eq!(fs.getattr(dir).unwrap().size, len);
    close(&*fs);
    judge(&image);
    let fs = common::open_image(&image);
    let mut count = 0;
    fs.read_dir(resolve(&*fs, "/many").unwrap(), obento_driver::Cookie::START, &mut |entry| {
        count += usize::from(entry.is_ok());
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(count, 59_000);
}

#[test]
fn a_volume_of_two_tebibytes_stores_a_file_of_more_than_four_gibibytes() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    make(&image, 2 << 40);
    let fs = common::open_to_write(&image);
    let vfs = Vfs::new(fs.clone());
    let ino = create(&*fs, fs.root(), "large", FileKind::Regular).unwrap();
    let file = vfs.node(ino).unwrap();
    file.truncate(1 << 40).unwrap();
    file.truncate(6 << 30).unwrap();
    file.write_at(0, b"begin").unwrap();
    // A hole is punched for the gap.
    file.write_at((5 << 30) + 3, b"far").unwrap();
    close(&*fs);
    judge(&image);
    let fs = common::open_image(&image);
    let ino = resolve(&*fs, "/large").unwrap();
    assert_eq!(fs.getattr(ino).unwrap().size, 6 << 30);
    let file = Vfs::new(fs.clone()).node(ino).unwrap();
    let mut bytes = [1; 8];
    file.read_at((5 << 30) - 1, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0\0\0\0far\0");
    let lock = LayoutLock::new();
    let last = fs.map(&lock.shared(), ino, (6 << 30) - 4096..6 << 30).unwrap();
    assert_eq!(last.span, Span::Unwritten);
}
