//! The command of each judge, and the parsers of its output.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use obento_testkit::oracle::program;

use super::{Ends, Judge};
use crate::stress::scale;
use crate::support::text;

pub(super) const JUDGES: &[Judge] = &[
    Judge { name: "pjdfstest", run: pjdfstest },
    Judge { name: "fsx", run: fsx },
    Judge { name: "fio", run: fio },
    Judge { name: "stress-ng", run: stress_ng },
];

/// The tests of pjdfstest that apply to ext4 on Linux, and users for them.
const PJDFSTEST: &str = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\nutimensat = {}\n\
    [settings]\nnaptime = 0.01\nallow_remount = false\n[dummy_auth]\n\
    entries = [[\"nobody\", \"nogroup\"], [\"games\", \"games\"], [\"daemon\", \"daemon\"]]\n";

fn pjdfstest(at: &Path, own: &Path) -> Ends {
    fs::set_permissions(at, PermissionsExt::from_mode(0o777)).unwrap();
    let config = own.join("pjdfstest.toml");
    fs::write(&config, PJDFSTEST).unwrap();
    let output = program("pjdfstest").arg("-c").arg(config).arg("-p").arg(at).output().unwrap();
    let said = text(&output.stdout);
    let lines = said.lines().filter(|line| !line.starts_with('\t') && !line.starts_with("Summary"));
    let ends: Ends = lines
        .filter_map(|line| line.trim().rsplit_once(' '))
        .map(|(name, end)| (name.trim().to_owned(), end.to_owned()))
        .collect();
    assert!(ends.len() > 300, "{said}");
    ends
}

/// Mappings, holes and copies of all sizes but 0: posix_fallocate(3) rejects 0 bytes on every file system,
/// and fsx gives up then.
pub const FSX: &str = "[opsize]\nmin = 1\n[weights]\ntruncate = 1\ninvalidate = 1\nfsync = 1\nfdatasync = 1\npunch_hole = 1\n\
    copy_file_range = 1\nposix_fallocate = 1\n";

fn fsx(at: &Path, own: &Path) -> Ends {
    let config = own.join("fsx.toml");
    fs::write(&config, FSX).unwrap();
    let operations = scale(5000, 100_000).to_string();
    let seed = |seed: u32| {
        let mut fsx = program("fsx");
        fsx.args(["-q", "-N", &operations, "-S", &seed.to_string(), "-f"]).arg(&config).arg("-P").arg(own);
        let output = fsx.arg(at.join(format!("f{seed}"))).output().unwrap();
        (format!("seed {seed}"), end_of(&output))
    };
    (1..=8).map(seed).collect()
}

fn fio(at: &Path, _own: &Path) -> Ends {
    let engines = ["psync", "mmap", "libaio"];
    let patterns = ["write", "randwrite", "randrw"];
    let all = engines.iter().flat_map(|engine| patterns.map(|pattern| (pattern, engine)));
    let run = |(pattern, engine): (&str, &&str)| {
        let mut fio = program("fio");
        fio.current_dir(at).args(["--name=v", "--bs=4k", "--verify=crc32c", "--end_fsync=1"]);
        fio.args([
            format!("--rw={pattern}"),
            format!("--ioengine={engine}"),
            format!("--size={}M", scale(8, 64)),
        ]);
        (format!("{pattern}, {engine}"), end_of(&fio.output().unwrap()))
    };
    all.map(run).collect()
}

/// The stressors of the class `filesystem` that use the given folder, and two more that use it.
const STRESSORS: &str = "access chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dup fallocate fcntl fiemap \
    file-ioctl filename flock fpunch fsize fstat getdent handle hdd inode-flags inotify io iomix lease link locka lockf \
    lockofd mknod open readahead rename seek symlink sync-file touch utime verity xattr";

fn stress_ng(at: &Path, _own: &Path) -> Ends {
    let run = |stressor: &str| {
        let mut stress = program("stress-ng");
        let seconds = scale(1, 5).to_string();
        stress.arg("--temp-path").arg(at).args([
            "--timeout",
            &seconds,
            "--verify",
            &format!("--{stressor}"),
            "1",
        ]);
        let small = ["hdd", "fallocate", "iomix", "readahead"].contains(&stressor);
        stress.args(small.then(|| [format!("--{stressor}-bytes"), "32m".into()]).into_iter().flatten());
        let output = stress.output().unwrap();
        let end = match output.status.code() {
            // The exit status is 0, and the output says that the stressor did nothing.
            Some(0) if text(&output.stderr).contains("skipping stress") => "skipped".into(),
            Some(3) => "no resources".into(),
            Some(4) => "not implemented".into(),
            _ => end_of(&output),
        };
        (stressor.to_owned(), end)
    };
    STRESSORS.split_whitespace().map(run).collect()
}

/// Returns `ok`, or the last line of a program.
fn end_of(output: &Output) -> String {
    if output.status.success() {
        return "ok".into();
    }
    println!("{}{}", text(&output.stdout), text(&output.stderr));
    let said = text(&output.stderr) + &text(&output.stdout);
    let last = said.lines().map(str::trim).rfind(|line| line.contains("fail") || line.contains("rror"));
    format!("FAILED: {}", last.unwrap_or("no word").replace('|', "/"))
}
