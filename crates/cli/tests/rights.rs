//! The rights that commands give up, and when; and devices that they do not change because another device
//! shares their bytes.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use obento_testkit::oracle::{LoopMount, Oracle, call, program, require, run};
use tempfile::TempDir;

struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn ext4(&self, name: &str) {
        File::create(self.path(name)).unwrap().set_len(16 << 20).unwrap();
        run(program("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(self.path(name))).unwrap();
    }

    fn obento(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(self.0.path()).args(line.split(' ')).stdin(Stdio::null()).output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The bytes of an image that are read before rights are given up: the signatures of containers, which are
/// compared with constants. The signature of a fixed VHD is in the last sector.
const SIGNATURE: u64 = 3 * 512;

/// Returns the number of bytes that a call of `trace` read of `image`; 0 for other calls.
fn bytes_of(line: &str, image: &str) -> u64 {
    let is_read = line.contains("read") && line.contains(image);
    let result = line.rsplit_once("= ").map_or("", |(_, result)| result.split(' ').next().unwrap_or(""));
    result.parse().ok().filter(|_| is_read).unwrap_or(0)
}

/// Runs `line` under strace, and returns how many bytes of `image` were read before and after the filter of calls was set.
fn reads(bench: &Bench, line: &str, image: &str) -> (u64, u64) {
    let trace = bench.path("trace");
    let calls = "-etrace=seccomp,prctl,read,pread64,readv,preadv,preadv2";
    let mut command = program("strace");
    command.current_dir(bench.0.path()).args(["-f", "-y", calls, "-o"]).arg(&trace);
    command.arg(env!("CARGO_BIN_EXE_obento")).args(line.split(' ')).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{line}: {}", text(&output.stderr));
    let trace = fs::read_to_string(trace).unwrap();
    let sets_filter =
        |line: &str| line.contains("SECCOMP_SET_MODE_FILTER") || line.contains("PR_SET_SECCOMP");
    let at = trace.lines().position(sets_filter).unwrap_or_else(|| panic!("{line}: no filter is set"));
    let sum = |lines: &mut dyn Iterator<Item = &str>| lines.map(|line| bytes_of(line, image)).sum();
    (sum(&mut trace.lines().take(at)), sum(&mut trace.lines().skip(at)))
}

#[test]
fn commands_decode_images_after_their_rights_were_given_up() {
    if !require(&[Oracle::Program("strace"), Oracle::Program("mke2fs"), Oracle::Program("tar")]) {
        return;
    }
    let bench = Bench::new();
    bench.ext4("one.img");
    bench.ext4("two.img");
    fs::create_dir(bench.path("tree")).unwrap();
    fs::write(bench.path("tree/file"), "text").unwrap();
    let (tar, tree) = (bench.path("a.tar"), bench.path("tree"));
    call("tar", ["-C".as_ref(), tree.as_os_str(), "-cf".as_ref(), tar.as_os_str(), "file".as_ref()]).unwrap();
    let lines = [
        "ls one.img:/",
        "import one.img:/ a.tar",
        "export one.img out.tar",
        // The output exists now.
        "export one.img out.tar",
        "diff -r one.img:/ two.img:/",
        "diff -r one.img:/ tree",
        "diff one.img:/file tree/file",
        "cmp one.img:/file tree/file",
        "cmp tree/file one.img:/file",
        "cmp one.img two.img",
        "diff --bytes one.img two.img",
        "info one.img",
        "sha256sum -r one.img",
        "-t ext4 check -n one.img",
        "-t ext4 check -y one.img",
    ];
    // These commands open the container twice.
    let twice = ["undelete one.img", "recover --list one.img"];
    for (line, opens) in lines.map(|line| (line, 1)).into_iter().chain(twice.map(|line| (line, 2))) {
        let (before, after) = reads(&bench, &format!("--engine native {line}"), "one.img>");
        assert!(before <= opens * SIGNATURE, "{line}: {before} bytes are read with all rights");
        // Some bytes of a changed image are read through the page cache in large units.
        assert!(after >= 1024, "{line}: only {after} bytes are read without rights");
    }
}

/// Returns the process that serves the mount at `at`.
fn server(at: &Path) -> u32 {
    let own = |entry: &fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = text(&line);
        line.contains("mount")
            && line.contains("rights.img")
            && line.contains(at.file_name().unwrap().to_str().unwrap())
    };
    let found = fs::read_dir("/proc").unwrap().flatten().find(own);
    found.expect("a server runs").file_name().to_str().unwrap().parse().unwrap()
}

#[test]
fn the_server_of_a_mount_has_no_rights_in_any_of_its_threads() {
    if !require(&[Oracle::Root, Oracle::Fuse, Oracle::Program("mke2fs")]) {
        return;
    }
    let bench = Bench::new();
    for access in ["ro", "rw"] {
        bench.ext4("rights.img");
        let at = bench.path(&format!("mnt-{access}"));
        fs::create_dir(&at).unwrap();
        let mounted = bench.obento(&format!("mount -o {access} rights.img mnt-{access}"));
        assert!(mounted.status.success(), "{}", text(&mounted.stderr));
        // All files are read, so that all threads work.
        assert!(fs::read_dir(&at).unwrap().flatten().any(|entry| entry.file_name() == "lost+found"));
        let server = server(&at);
        let mut found = Vec::new();
        for thread in fs::read_dir(format!("/proc/{server}/task")).unwrap().flatten() {
            let status = fs::read_to_string(thread.path().join("status")).unwrap();
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.unwrap_or_default().trim_start_matches(':').trim().to_owned()
            };
            found.push((field("NoNewPrivs"), field("Seccomp"), field("CapEff"), field("CapPrm")));
        }
        let open = bench.obento(&format!("umount mnt-{access}"));
        assert!(open.status.success(), "{}", text(&open.stderr));
        assert!(!found.is_empty());
        let zero = "0000000000000000";
        for (no_new, seccomp, effective, permitted) in &found {
            assert_eq!((&**no_new, &**seccomp), ("1", "2"), "{access}: {found:?}");
            assert_eq!((&**effective, &**permitted), (zero, zero), "{access}: {found:?}");
        }
    }
}

/// A loop device that is detached on drop.
struct Loop(String);

impl Loop {
    fn new(image: &Path, options: &[&str]) -> Self {
        let mut command = program("losetup");
        let output = run(command.args(["-f", "--show"]).args(options).arg(image)).unwrap();
        Self(text(&output.stdout).trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = call("losetup", ["-d", &self.0]);
    }
}

#[test]
fn a_loop_device_whose_bytes_another_one_shows_is_not_changed() {
    if !require(&[Oracle::Root, Oracle::LoopMount, Oracle::Program("mke2fs"), Oracle::Program("losetup")]) {
        return;
    }
    let bench = Bench::new();
    bench.ext4("disk.img");
    let image = bench.path("disk.img");
    let refused = |device: &Loop, words: &str| {
        let output = bench.obento(&format!("mkdir {}:/d", device.0));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("in use by") && said.contains(words), "{said}");
        // Reading is allowed.
        assert!(bench.obento(&format!("ls {}:/", device.0)).status.success());
    };
    {
        // The image is mounted first, because mount(8) uses an existing loop device of the file.
        let mount = LoopMount::new(&image, "rw").unwrap();
        let second = Loop::new(&image, &[]);
        refused(&second, mount.path().to_str().unwrap());
        drop(second);
        mount.unmount().unwrap();
    }
    {
        let (one, other) = (Loop::new(&image, &[]), Loop::new(&image, &[]));
        refused(&one, &other.0);
    }
    // A device of other bytes of the file does not count as a user.
    File::options().write(true).open(&image).unwrap().set_len(32 << 20).unwrap();
    let first = Loop::new(&image, &["--sizelimit", "16777216"]);
    let behind = Loop::new(&image, &["--offset", "16777216"]);
    let output = bench.obento(&format!("mkdir {}:/d", first.0));
    assert!(output.status.success(), "{}", text(&output.stderr));
    drop((first, behind));
    call("e2fsck", ["-fn".as_ref(), image.as_os_str()]).unwrap();
}
