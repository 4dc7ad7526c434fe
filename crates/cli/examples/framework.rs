//! What the framework itself costs per call: a driver that has nothing to do, through the library and behind a mount.
//!
//! `cargo run --release -p obento-cli --example framework -- measure`; with other arguments this is the command `obento`
//! with that driver in its registry, which is how the mount is made. The least of five rounds is told: what else the machine
//! did only adds to it.

use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use obento::{Caller, FileSystem as _, Ino, Name, Symlinks, Vfs};
use obento_testkit::null::{MAGIC, Null, NullDriver};

const CALLS: u32 = 20_000;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() != Some("measure") {
        return obento_cli::main(obento::Registry::empty().with(NullDriver));
    }
    println!("| host | call | ns |\n|---|---|---|");
    library();
    mounted();
    ExitCode::SUCCESS
}

/// Tells what one of [`CALLS`] calls takes, each with a number that no call had before.
fn tell(host: &str, what: &str, mut call: impl FnMut(u32)) {
    let round = |round: u32, call: &mut dyn FnMut(u32)| {
        let begin = Instant::now();
        (round * CALLS..(round + 1) * CALLS).for_each(call);
        begin.elapsed().as_nanos() / u128::from(CALLS)
    };
    let least = (0..5).map(|number| round(number, &mut call)).min().unwrap_or_default();
    println!("| {host} | {what} | {least} |");
}

fn library() {
    let digits = |n: u32| n.to_string().into_bytes();
    tell("driver alone", "lookup and attributes", |n| {
        let name = digits(n);
        let found = Null.lookup(Ino(1), Name::new(&name).expect("digits are a name"));
        black_box(Null.getattr(found.expect("every number is there"))).expect("it is there");
    });
    let vfs = Vfs::new(Arc::new(Null));
    let root = vfs.root();
    let resolve =
        |path: &[u8]| vfs.resolve(&root, path, Symlinks::Keep, &Caller::Owner).expect("it is there");
    tell("library", "path of a file met first, and its attributes", |n| {
        black_box(resolve(&digits(n)).attr()).expect("it is there");
    });
    tell("library", "path of a file that is known, and its attributes", |_| {
        black_box(resolve(b"7").attr()).expect("it is there");
    });
    let node = resolve(b"8");
    let mut buf = [0; 4096];
    tell("library", "4 KiB read", |n| {
        black_box(node.read_at(u64::from(n) * 4096, &mut buf)).expect("it is there");
    });
}

fn mounted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (image, at) = (folder.path().join("null.img"), folder.path().join("mnt"));
    fs::write(&image, [MAGIC.as_slice(), &[0; 4088]].concat()).expect("an image");
    fs::create_dir(&at).expect("a folder to mount at");
    command(&["mount", "-o", "ro"], &[&image, &at]);
    tell("FUSE", "stat of a file met first: a LOOKUP", |n| {
        black_box(fs::symlink_metadata(at.join(n.to_string()))).expect("it is there");
    });
    tell("FUSE", "stat of a file that the kernel knows", |_| {
        black_box(fs::symlink_metadata(at.join("7"))).expect("it is there");
    });
    // Its bits differ between processors.
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let file = fs::OpenOptions::new().read(true).custom_flags(direct).open(at.join("8")).expect("it opens");
    let mut buf = vec![0; 4096 * 2];
    let aligned = buf.as_ptr().align_offset(4096);
    tell("FUSE", "4 KiB read past the page cache: a READ", |n| {
        read(&file, u64::from(n) * 4096, &mut buf[aligned..aligned + 4096]);
    });
    drop(file);
    command(&["umount"], &[&at]);
}

fn read(file: &File, offset: u64, buf: &mut [u8]) {
    black_box(file.read_at(buf, offset)).expect("it is there");
}

fn command(words: &[&str], paths: &[&Path]) {
    let program = std::env::current_exe().expect("this program has a name");
    let status = Command::new(program).args(words).args(paths).status().expect("it starts");
    assert!(status.success(), "{words:?}");
}
