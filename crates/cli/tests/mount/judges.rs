//! Programs that judge file systems: pjdfstest, fsx, fio, stress-ng. `cargo xtask stress` installs and runs them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};

use crate::support::{Disk, text};

/// What of pjdfstest applies to ext4 on Linux, and users to be.
const PJDFSTEST: &str = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\nutimensat = {}\n\
    [settings]\nnaptime = 0.01\nallow_remount = false\n[dummy_auth]\n\
    entries = [[\"nobody\", \"nogroup\"], [\"games\", \"games\"], [\"daemon\", \"daemon\"]]\n";

/// All that a mapping, a hole and a copy can be, and never of nothing: posix_fallocate(3) refuses 0 bytes anywhere, on which
/// fsx gives up.
const FSX: &str = "[opsize]\nmin = 1\n[weights]\ntruncate = 1\ninvalidate = 1\nfsync = 1\nfdatasync = 1\npunch_hole = 1\n\
    copy_file_range = 1\nposix_fallocate = 1\n";

/// Where a mount differs from the kernel's ext4, and why.
const KNOWN: [(&str, &str); 1] = [(
    "link::link_count_max",
    "the C library knows the limits of a file system by its type, and none for FUSE",
)];

/// What became of each test of pjdfstest in `folder`.
fn pjdfstest(config: &Path, folder: &Path) -> BTreeMap<String, String> {
    fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).unwrap();
    let output = program("pjdfstest").arg("-c").arg(config).arg("-p").arg(folder).output().unwrap();
    let said = text(&output.stdout);
    println!("{}", said.lines().last().unwrap_or_default());
    let lines = said.lines().filter(|line| !line.starts_with('\t') && !line.starts_with("Summary"));
    let mut ends = BTreeMap::new();
    for line in lines {
        if let Some((name, end)) = line.trim().rsplit_once(' ') {
            ends.insert(name.trim().to_owned(), end.to_owned());
        }
    }
    assert!(ends.len() > 300, "{said}");
    ends
}

#[test]
#[ignore = "a campaign: cargo xtask stress"]
fn pjdfstest_finds_what_it_finds_on_the_kernels_ext4_but_where_the_reason_is_known() {
    let needed = [Oracle::LoopMount, Oracle::Program("pjdfstest")];
    let Some(disk) = Some(()).filter(|()| require(&needed)).and_then(|()| Disk::mounted("rw,allow_other"))
    else {
        return;
    };
    let config = disk.folder().join("pjdfstest.toml");
    fs::write(&config, PJDFSTEST).unwrap();
    let ours = pjdfstest(&config, &disk.at());
    disk.umount();
    disk.fsck();
    let kernel = Disk::new(&[]).unwrap();
    run(program("mount").args(["-t", "ext4", "-o", "loop"]).arg(kernel.image()).arg(kernel.at())).unwrap();
    let theirs = pjdfstest(&config, &kernel.at());
    run(program("umount").arg(kernel.at())).unwrap();
    let differs = |name: &&String| ours.get(*name) != theirs.get(*name);
    let mut unknown = Vec::new();
    for name in ours.keys().chain(theirs.keys()).filter(differs) {
        let reason = KNOWN.iter().find(|(known, _)| known == name).map(|(_, reason)| *reason);
        println!("{name}: {:?} here, {:?} there: {reason:?}", ours.get(name), theirs.get(name));
        unknown.extend(Some(name).filter(|_| reason.is_none()));
    }
    assert_eq!(unknown, Vec::<&String>::new());
    assert!(ours.values().all(|end| end == "ok" || end == "skipped"));
}

#[test]
#[ignore = "a campaign: cargo xtask stress"]
fn fsx_finds_nothing_under_eight_seeds() {
    let Some(disk) =
        Some(()).filter(|()| require(&[Oracle::Program("fsx")])).and_then(|()| Disk::mounted("rw"))
    else {
        return;
    };
    let config = disk.folder().join("fsx.toml");
    fs::write(&config, FSX).unwrap();
    for seed in 1..=8 {
        let mut fsx = program("fsx");
        fsx.args(["-q", "-N", "100000", "-S", &seed.to_string(), "-f"])
            .arg(&config)
            .arg("-P")
            .arg(disk.folder());
        run(fsx.arg(disk.path(&format!("f{seed}")))).unwrap();
    }
    disk.umount();
}

#[test]
#[ignore = "a campaign: cargo xtask stress"]
fn fio_reads_what_it_wrote() {
    let Some(disk) =
        Some(()).filter(|()| require(&[Oracle::Program("fio")])).and_then(|()| Disk::mounted("rw"))
    else {
        return;
    };
    for (pattern, engine) in
        ["psync", "mmap", "libaio"].into_iter().flat_map(|e| [("randwrite", e), ("randrw", e)])
    {
        let mut fio = program("fio");
        fio.current_dir(disk.at()).args([
            "--name=v",
            "--size=64M",
            "--bs=4k",
            "--verify=crc32c",
            "--end_fsync=1",
        ]);
        run(fio.args([format!("--rw={pattern}"), format!("--ioengine={engine}")])).unwrap();
    }
    disk.umount();
}

#[test]
#[ignore = "a campaign: cargo xtask stress"]
fn stress_ng_meets_no_error_for_two_minutes() {
    let Some(disk) =
        Some(()).filter(|()| require(&[Oracle::Program("stress-ng")])).and_then(|()| Disk::mounted("rw"))
    else {
        return;
    };
    let stressors = "hdd dentry dir dirdeep rename link symlink fallocate seek xattr chmod chown utime filename getdent \
        iomix readahead flock lockf locka fiemap open sync-file copy-file dup fstat access touch";
    let mut stress = program("stress-ng");
    stress.arg("--temp-path").arg(disk.at()).args(["--timeout", "120", "--hdd-bytes", "32m"]);
    stress.args(["--fallocate-bytes", "32m", "--iomix-bytes", "16m", "--readahead-bytes", "16m"]);
    stress.args(stressors.split_whitespace().flat_map(|name| [format!("--{name}"), "1".into()]));
    run(&mut stress).unwrap();
    disk.umount();
}
