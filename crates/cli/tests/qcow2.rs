//! Snapshots and backing files of qcow2 images against qemu-img.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use obento_testkit::oracle::{Oracle, call, require};

const MIB: u64 = 1 << 20;

struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs obento. Paths are relative to the folder.
    fn obento(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(self.0.path()).args(args).env("TZ", "UTC0").stdin(Stdio::null());
        command.output().unwrap()
    }

    #[track_caller]
    fn succeed(&self, args: &[&str]) -> String {
        let output = self.obento(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn fail(&self, args: &[&str]) -> String {
        let output = self.obento(args);
        assert!(!output.status.success(), "{args:?} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Runs a program in the folder.
    #[track_caller]
    fn run(&self, program: &str, args: &[&str]) -> String {
        let run = [&["-C", self.0.path().to_str().unwrap(), program][..], args].concat();
        String::from_utf8(call("env", run.into_iter().map(Path::new)).unwrap().stdout).unwrap()
    }

    /// Creates an image with one file, `/state`, and snapshots of two earlier contents of the file.
    fn with_snapshots(&self) {
        self.run("qemu-img", &["create", "-q", "-f", "qcow2", "disk.qcow2", "16M"]);
        self.succeed(&["mkfs", "-q", "-F", "disk.qcow2"]);
        for (text, snapshot) in [("one", Some("before")), ("two", Some("a @:/% name")), ("now", None)] {
            fs::write(self.path("state"), text.repeat(30_000)).unwrap();
            self.succeed(&["cp", "state", "disk.qcow2:/state"]);
            if let Some(name) = snapshot {
                self.run("qemu-img", &["snapshot", "-c", name, "disk.qcow2"]);
            }
        }
    }
}

#[test]
fn a_snapshot_has_the_contents_that_qemu_img_converts() {
    if !require(&["qemu-img", "cmp", "gzip"].map(Oracle::Program)) {
        return;
    }
    let fixture = Fixture::new();
    fixture.with_snapshots();
    let odd = "a%20%40%3A%2f%25%20name";
    for (address, oracle, text) in [
        ("disk.qcow2%before".to_owned(), "before", "one"),
        ("disk.qcow2%1".to_owned(), "1", "one"),
        (format!("disk.qcow2%{odd}"), "a @:/% name", "two"),
        ("disk.qcow2%2".to_owned(), "2", "two"),
    ] {
        fixture.run("qemu-img", &["convert", "-l", oracle, "-O", "raw", "disk.qcow2", "theirs.img"]);
        fixture.succeed(&["convert", "-q", "-f", "--verify", &address, "ours.img"]);
        fixture.run("cmp", &["theirs.img", "ours.img"]);
        assert_eq!(fixture.succeed(&["cat", &format!("{address}:/state")]), text.repeat(30_000));
        fixture.succeed(&["check", &address]);
    }
    assert_eq!(fixture.succeed(&["cat", "disk.qcow2:/state"]), "now".repeat(30_000));
    fixture.run("gzip", &["-k", "disk.qcow2"]);
    assert_eq!(fixture.succeed(&["cat", "disk.qcow2.gz%before:/state"]), "one".repeat(30_000));
    assert!(fixture.fail(&["diff", "-r", "disk.qcow2%before:/", "disk.qcow2:/"]).is_empty());
    fixture.run("qemu-img", &["check", "-q", "disk.qcow2"]);
}

#[test]
fn info_lists_the_snapshots_that_qemu_img_lists() {
    if !require(&["qemu-img"].map(Oracle::Program)) {
        return;
    }
    let fixture = Fixture::new();
    fixture.with_snapshots();
    let listed = fixture.run("env", &["TZ=UTC0", "qemu-img", "snapshot", "-l", "disk.qcow2"]);
    let info = fixture.succeed(&["info", "disk.qcow2"]);
    for name in ["before", "a @:/% name"] {
        let line = listed.lines().find(|line| line.contains(name)).expect(&listed);
        let date = line.split_whitespace().find(|word| word.starts_with("20")).unwrap();
        let line = info.lines().find(|line| line.contains(&format!("\"{name}\""))).expect(&info);
        assert!(
            line.starts_with("  snapshot ") && line.contains(date) && line.contains("disk of 16 MiB"),
            "{line}"
        );
    }
    let json = fixture.succeed(&["info", "--json", "disk.qcow2"]);
    let snapshots: Vec<_> = json.lines().filter(|line| line.contains("\"snapshot\"")).collect();
    assert_eq!(snapshots.len(), 2, "{json}");
    assert!(snapshots[0].contains("\"id\":\"1\"") && snapshots[0].contains("\"name\":\"before\""), "{json}");
    assert!(snapshots[0].contains("\"size\":16777216"), "{json}");
}

#[test]
fn a_snapshot_of_a_disk_has_partitions_and_cannot_be_changed() {
    if !require(&["qemu-img", "sgdisk"].map(Oracle::Program)) {
        return;
    }
    let fixture = Fixture::new();
    File::create(fixture.path("disk.img")).unwrap().set_len(32 * MIB).unwrap();
    fixture.run("sgdisk", &["--new=1:2048:+8M", "--new=2:0:+16M", "disk.img"]);
    fixture.succeed(&["mkfs", "-q", "disk.img@2"]);
    fixture.succeed(&["mkdir", "disk.img@2:/old"]);
    fixture.succeed(&["convert", "-q", "disk.img", "disk.qcow2"]);
    fixture.run("qemu-img", &["snapshot", "-c", "before", "disk.qcow2"]);
    fixture.succeed(&["rmdir", "disk.qcow2@2:/old"]);
    assert_eq!(fixture.succeed(&["ls", "disk.qcow2%before@2:/"]), "lost+found\nold\n");
    assert_eq!(fixture.succeed(&["ls", "disk.qcow2@2:/"]), "lost+found\n");
    let bytes = fs::read(fixture.path("disk.qcow2")).unwrap();
    for args in [
        &["mkdir", "disk.qcow2%before@2:/new"][..],
        &["mkfs", "-F", "disk.qcow2%before"],
        &["tune", "disk.qcow2%before@2", "-L", "x"],
        &["part", "disk.qcow2%before", "delete", "1"],
        &["check", "-y", "disk.qcow2%before@2"],
    ] {
        let error = fixture.fail(args);
        assert!(
            error.contains("cannot change 'disk.qcow2%before': a snapshot is read-only"),
            "{args:?}: {error}"
        );
    }
    assert!(fs::read(fixture.path("disk.qcow2")).unwrap() == bytes);
    let error = fixture.fail(&["ls", "disk.qcow2%none@2:/"]);
    let expected = "cannot open 'disk.qcow2%none': the image has no snapshot 'none'\n  help: run 'obento info disk.qcow2'";
    assert!(error.contains(expected), "{error}");
    let error = fixture.fail(&["ls", "disk.img%before@2:/"]);
    assert!(error.contains("only qcow2 images have snapshots"), "{error}");
    // A file of this name is that file.
    fs::copy(fixture.path("disk.img"), fixture.path("disk.qcow2%before")).unwrap();
    fixture.succeed(&["mkdir", "disk.qcow2%before@2:/new"]);
}

#[test]
fn an_overlay_stores_changes_only_and_qemu_img_commits_them() {
    if !require(&["qemu-img", "cmp"].map(Oracle::Program)) {
        return;
    }
    for (base, format, args) in [
        ("base.qcow2", "qcow2", &[][..]),
        ("base.img", "raw", &["--qcow2-version=2"]),
        ("a:base.img", "raw", &[]),
    ] {
        let fixture = Fixture::new();
        let created = if format == "raw" { "raw" } else { "qcow2" };
        fixture.run("qemu-img", &["create", "-q", "-f", created, &format!("./{base}"), "16M"]);
        fixture.succeed(&["mkfs", "-q", "-F", &format!("./{base}")]);
        fixture.succeed(&["mkdir", &format!("./{base}:/old")]);
        let before = fs::read(fixture.path(base)).unwrap();
        fixture.succeed(&[&["convert", "-q", "--backing", base, "top.qcow2"], args].concat());
        assert!(fs::metadata(fixture.path("top.qcow2")).unwrap().len() < MIB / 2);
        let info = fixture.run("qemu-img", &["info", "--output=json", "top.qcow2"]);
        let stored = if base.contains(':') { format!("./{base}") } else { base.to_owned() };
        assert!(info.contains(&format!("\"backing-filename\": \"{stored}\"")), "{info}");
        assert!(info.contains(&format!("\"backing-filename-format\": \"{format}\"")), "{info}");
        fixture.run("qemu-img", &["check", "-q", "top.qcow2"]);
        let compare = ["compare", "-q", "-f", format, "-F", "qcow2", &format!("./{base}"), "top.qcow2"];
        fixture.run("qemu-img", &compare);

        let error = fixture.fail(&["ls", "top.qcow2"]);
        assert!(error.contains("--allow-backing"), "{error}");
        fixture.succeed(&["--allow-backing", "mv", "top.qcow2:/old", "top.qcow2:/new"]);
        assert!(fs::read(fixture.path(base)).unwrap() == before, "the backing file was changed");
        fixture.run("qemu-img", &["check", "-q", "top.qcow2"]);
        fixture.run("qemu-img", &["convert", "-O", "raw", "top.qcow2", "theirs.img"]);
        fixture.succeed(&["--allow-backing", "convert", "-q", "top.qcow2", "ours.img"]);
        fixture.run("cmp", &["theirs.img", "ours.img"]);
        assert_eq!(fixture.succeed(&["ls", "theirs.img"]), "lost+found\nnew\n");
        assert_eq!(fixture.succeed(&["ls", &format!("./{base}")]), "lost+found\nold\n");

        fs::copy(fixture.path(base), fixture.path("moved")).unwrap();
        fixture.run("qemu-img", &["rebase", "-u", "-F", format, "-b", "moved", "top.qcow2"]);
        fixture.run("qemu-img", &["commit", "-q", "top.qcow2"]);
        assert_eq!(fixture.succeed(&["ls", "moved"]), "lost+found\nnew\n");
    }
}

#[test]
fn an_overlay_that_could_not_be_opened_is_not_created() {
    if !require(&["qemu-img"].map(Oracle::Program)) {
        return;
    }
    let fixture = Fixture::new();
    fixture.with_snapshots();
    fs::create_dir(fixture.path("sub")).unwrap();
    fixture.succeed(&["convert", "-q", "disk.qcow2", "disk.vmdk"]);
    let bytes = fs::read(fixture.path("disk.qcow2")).unwrap();
    for (args, why) in [
        (&["disk.qcow2", "sub/top.qcow2"][..], "the directory of OUT"),
        (&["disk.vmdk", "top.qcow2"], "the format is vmdk"),
        (&["-f", "disk.qcow2", "disk.qcow2"], "the new image would replace it"),
        (&["disk.qcow2%before", "top.qcow2"], "only a whole image file can be a backing file"),
        (&["disk.qcow2", "top.vdi"], "only qcow2 images have backing files"),
        (&["-c", "disk.qcow2", "top.qcow2"], "cannot be used with"),
    ] {
        let error = fixture.fail(&[&["convert", "--backing"], args].concat());
        assert!(error.contains(why), "{args:?}: {error}");
    }
    assert!(!fixture.path("top.qcow2").exists() && !fixture.path("sub/top.qcow2").exists());
    assert!(fs::read(fixture.path("disk.qcow2")).unwrap() == bytes);
    // An absolute name works from every folder; so does a second level.
    let base = fixture.path("disk.qcow2");
    fixture.succeed(&["convert", "-q", "--backing", base.to_str().unwrap(), "sub/one.qcow2"]);
    fixture.succeed(&["--allow-backing", "convert", "-q", "--backing", "sub/../sub/one.qcow2", "two.qcow2"]);
    assert_eq!(fixture.succeed(&["--allow-backing", "cat", "two.qcow2:/state"]), "now".repeat(30_000));
    fixture.run("qemu-img", &["compare", "-q", "two.qcow2", "disk.qcow2"]);
    // The base of the base.
    let error = fixture.fail(&["--allow-backing", "convert", "-f", "--backing", "two.qcow2", "disk.qcow2"]);
    assert!(error.contains("it refers to OUT, and the new image would replace OUT"), "{error}");
    assert!(fs::read(base).unwrap() == bytes);
}

#[test]
fn a_volume_near_the_end_of_a_disk_of_30_tib_with_clusters_of_2_mib_is_read_and_changed() {
    const DISK: u64 = 30 << 40;
    const START: u64 = DISK - 64 * MIB;
    const LEN: u64 = 20 * MIB;
    let programs = ["qemu-img", "qemu-io", "mkfs.fat", "mcopy", "mtype", "fsck.fat"];
    if !require(&programs.map(Oracle::Program)) {
        return;
    }
    let fixture = Fixture::new();
    fs::write(fixture.path("large"), [b"0123456789abcdef".repeat(20_000), b"end".to_vec()].concat()).unwrap();
    fs::write(fixture.path("new"), "new\n".repeat(5000)).unwrap();
    File::create(fixture.path("fat.img")).unwrap().set_len(LEN).unwrap();
    fixture.run("mkfs.fat", &["-F", "16", "fat.img"]);
    fixture.run("mcopy", &["-i", "fat.img", "large", "::/"]);
    fixture.run("qemu-img", &["create", "-q", "-f", "qcow2", "-o", "cluster_size=2M", "disk.qcow2", "30T"]);
    fixture.succeed(&["part", "disk.qcow2", "create", "gpt"]);
    let (start, len) = (START.to_string(), LEN.to_string());
    fixture.succeed(&["part", "disk.qcow2", "add", "--start", &start, "--size", &len]);
    fixture
        .run("qemu-io", &["-f", "qcow2", "-c", &format!("write -q -s fat.img {START} {LEN}"), "disk.qcow2"]);
    assert!(fixture.succeed(&["info", "disk.qcow2"]).contains(&format!("at byte {START}")));
    assert_eq!(fixture.succeed(&["ls", "disk.qcow2@1:/"]), "large\n");
    assert_eq!(
        fixture.succeed(&["cat", "disk.qcow2@1:/large"]).into_bytes(),
        fs::read(fixture.path("large")).unwrap()
    );
    fixture.succeed(&["cp", "new", "disk.qcow2@1:/"]);
    fixture.run("qemu-img", &["check", "-q", "disk.qcow2"]);
    let file = "file.driver=qcow2,file.file.driver=file,file.file.filename=disk.qcow2";
    let part = format!("driver=raw,offset={START},size={LEN},{file}");
    fixture.run("qemu-img", &["convert", "-O", "raw", "--image-opts", &part, "after.img"]);
    fixture.run("fsck.fat", &["-n", "after.img"]);
    assert_eq!(fixture.run("mtype", &["-i", "after.img", "::/new"]), "new\n".repeat(5000));
}

#[test]
fn names_of_snapshots_need_no_memory_without_a_limit() {
    if !require(&[Oracle::Program("qemu-img")]) {
        return;
    }
    let fixture = Fixture::new();
    for (count, name_len, reason) in [(1_u32, 65_535_u16, "a name is too long"), (65_536, 1_000, "too large")]
    {
        fixture.run("qemu-img", &["create", "-q", "-f", "qcow2", "disk.qcow2", "1M"]);
        // The entries are a hole of the file, but for their lengths.
        let at = 16 * MIB;
        let entry = (40 + u64::from(name_len)).next_multiple_of(8);
        let image = File::options().write(true).open(fixture.path("disk.qcow2")).unwrap();
        image.set_len(at + entry * u64::from(count)).unwrap();
        image.write_all_at(&count.to_be_bytes(), 60).unwrap();
        image.write_all_at(&at.to_be_bytes(), 64).unwrap();
        (0..u64::from(count)).for_each(|nth| {
            image.write_all_at(&name_len.to_be_bytes(), at + nth * entry + 14).unwrap();
        });
        let refused = fixture.fail(&["info", "disk.qcow2"]);
        assert!(refused.contains(reason), "{refused}");
    }
}
