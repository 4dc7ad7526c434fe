//! The cost of the framework for each call: a driver that does nothing, through the library and behind a mount.
//!
//! Run `cargo run --release -p obento-cli --example framework -- measure`. With other arguments this is the command
//! `obento` with that driver in its registry, which creates the mount. The least of five rounds is printed, because
//! other work of the machine only adds time.

use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use obento::base::{DeviceNumber, FileKind, Ino, Mode, Name};
use obento::driver::{Access, FileSystem as _, NewNode, SetAttr};
use obento::vfs::{Caller, Symlinks, Vfs};
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

/// Prints the time of each of [`CALLS`] calls; each call has a number that no earlier call had.
fn report(host: &str, what: &str, mut call: impl FnMut(u32)) {
    let round = |round: u32, call: &mut dyn FnMut(u32)| {
        let begin = Instant::now();
        (round * CALLS..(round + 1) * CALLS).for_each(call);
        begin.elapsed().as_nanos() / u128::from(CALLS)
    };
    let least = (0..5).map(|number| round(number, &mut call)).min().unwrap_or_default();
    println!("| {host} | {what} | {least} |");
}

fn library() {
    let (digits, null) = (|n: u32| n.to_string().into_bytes(), Null(Access::ReadWrite));
    report("driver alone", "lookup and attributes", |n| {
        let name = digits(n);
        let found = null.lookup(Ino(1), Name::new(&name).expect("digits are a name"));
        black_box(null.getattr(found.expect("every number exists"))).expect("it exists");
    });
    let vfs = Vfs::new(Arc::new(null));
    let root = vfs.root();
    let resolve = |path: &[u8]| vfs.resolve(&root, path, Symlinks::Keep, &Caller::Owner).expect("it exists");
    report("library", "path of a file met first, and its attributes", |n| {
        black_box(resolve(&digits(n)).attr()).expect("it exists");
    });
    report("library", "path of a file that is known, and its attributes", |_| {
        black_box(resolve(b"7").attr()).expect("it exists");
    });
    let node = resolve(b"8");
    let mut buf = [0; 4096];
    report("library", "4 KiB read", |n| {
        black_box(node.read_at(u64::from(n) * 4096, &mut buf)).expect("it exists");
    });
    changed(&vfs);
}

fn changed(vfs: &Vfs) {
    let (caller, root) = (&Caller::Owner, vfs.root());
    let (kind, mode) = (FileKind::Regular, Mode::new(0o644));
    let new = NewNode { kind, mode, uid: 0, gid: 0, rdev: DeviceNumber::default(), target: b"" };
    let create = |text: String| {
        let name = Name::new(text.as_bytes()).expect("it is a name");
        black_box(vfs.create(caller, &root, name, &new)).expect("all is made");
        text
    };
    report("library", "a file is made", |n| drop(create(format!("made{n}"))));
    report("library", "a file is made and removed", |n| {
        let text = create(format!("gone{n}"));
        vfs.unlink(caller, &root, Name::new(text.as_bytes()).expect("it is a name")).expect("all is removed");
    });
    let node = vfs.resolve(&root, b"8", Symlinks::Keep, caller).expect("it exists");
    report("library", "4 KiB overwrite", |n| {
        black_box(node.write_at(u64::from(n) * 4096, &[7; 4096])).expect("all is written");
    });
    report("library", "permissions are set", |n| {
        let mode = Some(Mode::new(0o600 + (n % 8) as u16));
        let change = SetAttr { mode, ..SetAttr::default() };
        black_box(vfs.set_attr(caller, &node, &change)).expect("all is set");
    });
}

fn mounted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (image, at) = (folder.path().join("null.img"), folder.path().join("mnt"));
    fs::write(&image, [MAGIC.as_slice(), &[0; 4088]].concat()).expect("an image");
    fs::create_dir(&at).expect("a folder to mount at");
    command(&["mount", "-o", "rw"], &[&image, &at]);
    report("FUSE", "stat of a file met first: a LOOKUP", |n| {
        black_box(fs::symlink_metadata(at.join(n.to_string()))).expect("it exists");
    });
    report("FUSE", "stat of a file that the kernel knows", |_| {
        black_box(fs::symlink_metadata(at.join("7"))).expect("it exists");
    });
    // Its bits differ between processors.
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(direct)
        .open(at.join("8"))
        .expect("it opens");
    let mut buf = vec![0; 4096 * 2];
    let aligned = buf.as_ptr().align_offset(4096);
    report("FUSE", "4 KiB read past the page cache: a READ", |n| {
        read(&file, u64::from(n) * 4096, &mut buf[aligned..aligned + 4096]);
    });
    report("FUSE", "4 KiB write past the page cache: a WRITE", |n| {
        black_box(file.write_at(&buf[aligned..aligned + 4096], u64::from(n) * 4096)).expect("all is written");
    });
    drop(file);
    report("FUSE", "a file is made: LOOKUP, CREATE and RELEASE", |n| {
        black_box(File::create_new(at.join(format!("made{n}")))).expect("all is made");
    });
    report("FUSE", "a file is made and removed: these and an UNLINK", |n| {
        let path = at.join(format!("gone{n}"));
        black_box(File::create_new(&path)).expect("all is made");
        fs::remove_file(path).expect("all is removed");
    });
    report("FUSE", "permissions are set: a SETATTR", |n| {
        fs::set_permissions(at.join("8"), fs::Permissions::from_mode(0o600 + n % 8)).expect("all is set");
    });
    command(&["umount"], &[&at]);
}

fn read(file: &File, offset: u64, buf: &mut [u8]) {
    black_box(file.read_at(buf, offset)).expect("it exists");
}

fn command(words: &[&str], paths: &[&Path]) {
    let program = std::env::current_exe().expect("this program has a name");
    let status = Command::new(program).args(words).args(paths).status().expect("it starts");
    assert!(status.success(), "{words:?}");
}
