//! Nothing remains after a process was killed.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use obento_testkit::oracle::{LoopMount, Oracle, require};

use crate::support::Bench;

/// The time limit of an operation: a bound against hangs, not a measurement.
const SOON: Duration = Duration::from_secs(30);

/// Returns the children of `parent`, and their children.
fn processes_of(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let list = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    for child in list.split_whitespace().filter_map(|pid| pid.parse().ok()) {
        found.push(child);
        found.extend(processes_of(child));
    }
    found
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::yield_now();
    }
}

fn is_gone(pid: u32) -> bool {
    // A process that ended and was not waited for has no command line.
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.is_empty())
        || !Path::new(&format!("/proc/{pid}")).exists()
}

/// Creates a Btrfs volume in `image`.
fn prepare() -> Option<Bench> {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program("mkfs.btrfs")]) {
        return None;
    }
    let bench = Bench::new();
    bench.blank("image", 130);
    bench.shell("mkfs.btrfs -q -r tree image");
    Some(bench)
}

/// Returns `command` without name spaces and capabilities, as in many containers.
fn without_name_spaces(command: &Command) -> Command {
    let script =
        "echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all \"$0\" \"$@\"";
    let mut confined = Command::new("unshare");
    confined.args(["-Ur", "sh", "-c", script]).arg(command.get_program()).args(command.get_args());
    confined.current_dir(command.get_current_dir().unwrap()).env("TZ", "UTC0");
    confined
}

/// Starts a shell that has the image open for changes, and has printed a prompt.
fn shell_on(bench: &Bench) -> Child {
    shown(bench.command("shell image"))
}

fn shown(mut command: Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"mkdir made\nls -d made\nrmdir made\n")
        .unwrap();
    let mut said = [0; 11];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"image:/made");
    child
}

#[test]
fn a_command_that_is_killed_leaves_no_process_and_no_lock() {
    let Some(bench) = prepare() else { return };
    let mut child = shell_on(&bench);
    let engine = processes_of(child.id());
    assert!(engine.len() >= 3, "a warden, another and the kernel: {engine:?}");
    let status = fs::read_to_string(format!("/proc/{}/status", engine[2])).unwrap();
    let processors = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    assert!(processors.trim().parse::<u32>().is_ok(), "the kernel stays on one processor: {processors}");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the kernel outlives its command", || engine.iter().all(|pid| is_gone(*pid)));
    // No process has the image open, and it is complete.
    bench.done("mkdir image:/next");
    bench.shell("btrfs check image");
}

#[test]
fn a_kernel_that_is_killed_is_an_error_and_leaves_nothing() {
    let Some(bench) = prepare() else { return };
    for victim in 0..3 {
        kill_one_of(shell_on(&bench), victim);
        bench.done(&format!("mkdir image:/next{victim}"));
        bench.shell("btrfs check image");
    }
}

#[test]
fn a_killed_kernel_leaves_nothing_on_a_host_without_user_name_spaces() {
    let Some(bench) = prepare() else { return };
    for victim in 0..3 {
        kill_one_of(shown(without_name_spaces(&bench.command("shell image"))), victim);
        bench.done(&format!("mkdir image:/bare{victim}"));
        bench.shell("btrfs check image");
    }
}

/// Kills the warden of `child`, the inner one or the kernel, and waits until all have ended.
fn kill_one_of(mut child: Child, victim: usize) {
    let engine = processes_of(child.id());
    let killed = Command::new("kill").args(["-9", &engine[victim].to_string()]).status().unwrap();
    assert!(killed.success());
    wait_until("the others live on", || engine.iter().all(|pid| is_gone(*pid)));
    drop(child.stdin.take());
    assert!(!child.wait().unwrap().success(), "its changes cannot have been closed");
}

/// Returns whether this process may become any user.
fn is_in_first_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[test]
fn a_kernel_that_root_starts_runs_as_a_user_of_its_own_without_inherited_files() {
    let Some(bench) = prepare() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let secret = bench.path("secret");
    fs::write(&secret, "x").unwrap();
    // The shell passes the descriptor on to the processes that it starts.
    let mut command = Command::new("sh");
    command.args(["-c", "exec 9< secret; exec \"$0\" shell image", env!("CARGO_BIN_EXE_obento")]);
    command.current_dir(bench.path("")).env("TZ", "UTC0");
    let mut child = shown(command);
    let engine = processes_of(child.id());
    for pid in &engine {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        // In a user namespace, only the overflow user may be possible.
        let is_own = |uid: u32| uid >= 1 << 31 || !is_in_first_namespace() && uid == 65534;
        assert!(line("Uid:").split_whitespace().all(|uid| is_own(uid.parse().unwrap())), "{status}");
        let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let mut names = files.filter_map(|file| fs::read_link(file.path()).ok());
        assert!(!names.any(|name| name == secret), "{pid} of {engine:?} has it open");
    }
    let kernel = fs::read_to_string(format!("/proc/{}/status", engine[2])).unwrap();
    for set in ["CapEff:", "CapPrm:", "CapBnd:"] {
        let bits = kernel.lines().find_map(|line| line.strip_prefix(set)).unwrap().trim();
        assert_eq!(u64::from_str_radix(bits, 16), Ok(0), "{set}");
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_kernel_starts_with_any_umask_and_any_place_of_its_program() {
    let Some(bench) = prepare() else { return };
    // New folders that their owner cannot enter.
    let ls = "exec \"$0\" ls image:/";
    let mut command = Command::new("sh");
    command.args(["-c", &format!("umask 0177; {ls}"), env!("CARGO_BIN_EXE_obento")]);
    let output = command.current_dir(bench.path("")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // The folders of its root and of its memory.
    let place =
        tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir_in("/dev/shm");
    let Ok(place) = place else { return };
    let kernel = place.path().join("linux.uml");
    fs::copy("/usr/bin/linux.uml", &kernel).unwrap();
    let output = bench.command("ls image:/").env("OBENTO_LINUX", &kernel).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The kernel is in a folder that only root can enter. The engine runs it as another user where that is possible.
#[test]
fn a_kernel_that_root_alone_may_start_is_started_by_root() {
    let Some(bench) = prepare() else { return };
    bench.shell("mkdir -m 700 private; cp -L /usr/bin/linux.uml private/");
    let output = bench.command("ls image:/").env("OBENTO_LINUX", bench.path("private/linux.uml")).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_file_system_that_the_host_unmounts_is_not_held_by_a_kernel() {
    let Some(bench) = prepare() else { return };
    if !require(&[Oracle::LoopMount, Oracle::Root, Oracle::Program("mke2fs")]) {
        return;
    }
    bench.blank("disk", 8);
    bench.shell("mke2fs -q disk");
    let mount = LoopMount::new(&bench.path("disk"), "").unwrap();
    let mut child = shell_on(&bench);
    let engine = processes_of(child.id());
    assert!(engine.len() >= 3, "{engine:?}");
    // The processes that the wardens and the kernel see; helpers of the kernel come and go.
    for pid in &engine[..3] {
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
        assert!(!mounts.contains(mount.path().to_str().unwrap()), "{pid} has it: {mounts}");
    }
    mount.unmount().unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// Numbers that look random and are the same in each run: xorshift of George Marsaglia.
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Types that preserve acknowledged changes, with the commands that create a volume of a number of MiB, and
/// that close and check it afterwards.
const KEEPING: [(&str, &str, u64, &str); 3] = [
    ("btrfs", "mkfs.btrfs -q", 130, "btrfs check"),
    ("xfs", "mkfs.xfs -q", 300, "xfs_repair -n"),
    ("jfs", "mkfs.jfs -q", 32, "fsck.jfs -n"),
];

#[test]
fn acknowledged_changes_exist_and_no_process_is_left_whichever_process_is_killed_at_any_time() {
    const LONGEST: u64 = 1_500;
    let Some(bench) = prepare() else { return };
    if !KEEPING.iter().all(|(_, make, ..)| require(&[Oracle::Program(make.split(' ').next().unwrap())])) {
        return;
    }
    for (name, make, megabytes, _) in KEEPING {
        bench.blank(name, megabytes);
        bench.shell(&format!("{make} {name}"));
    }
    let mut seed = 0x6f62_656e_746f;
    for round in 0..20 {
        let (image, .., check) = KEEPING[round % KEEPING.len()];
        bench.done(&format!("mkdir {image}:/kept{round}"));
        bench.done(&format!("cp tree/dir/big {image}:/kept{round}/file"));
        let mut child =
            bench.command(&format!("cp -r tree {image}:/")).stderr(Stdio::null()).spawn().unwrap();
        let (start, moment) = (Instant::now(), Duration::from_millis(next(&mut seed) % LONGEST));
        let mut engine = Vec::new();
        while start.elapsed() < moment {
            engine.extend(processes_of(child.id()));
            engine.sort_unstable();
            engine.dedup();
            // Any time is as good as another.
            thread::sleep(Duration::from_millis(5));
        }
        let mut all = vec![child.id()];
        // The wardens and the kernel. The watchdog notices within a minute that a helper has ended.
        all.extend(engine.iter().filter(|pid| !is_gone(**pid)).take(3));
        let victim = all[next(&mut seed) as usize % all.len()];
        let what = format!("round {round}, {image}: {victim} of {all:?} was killed after {moment:?}");
        let killed = Instant::now();
        // The process may have ended by itself.
        let _ =
            Command::new("kill").args(["-9", &victim.to_string()]).stderr(Stdio::null()).status().unwrap();
        child.wait().unwrap();
        // The kernel has 20 s to start: a process that waits for it does not notice that it ended.
        assert!(killed.elapsed() < SOON / 2, "{what}");
        wait_until(&format!("{what}, and others live on"), || engine.iter().all(|pid| is_gone(*pid)));
        // Linux does not replay the log of JFS.
        let (close, most) = if image == "jfs" { ("check -p", 1) } else { ("sync", 0) };
        let closed = bench.obento(&format!("{close} {image}"));
        assert!(closed.status.code().is_some_and(|code| code <= most), "{what}: {closed:?}");
        bench.shell(&format!("{check} {image}"));
    }
    for (place, (image, ..)) in KEEPING.iter().enumerate() {
        let listed = bench.done(&format!("ls {image}:/"));
        for round in (place..20).step_by(KEEPING.len()) {
            assert!(listed.contains(&format!("kept{round}\n")), "{image}: {listed}");
            bench.done(&format!("cp {image}:/kept{round}/file found"));
            bench.shell("cmp found tree/dir/big && rm found");
        }
    }
}

#[test]
fn several_engines_run_at_once() {
    let Some(bench) = prepare() else { return };
    let shells: Vec<_> =
        (0..3).map(|_| bench.command("ls image:/many").stdout(Stdio::piped()).spawn().unwrap()).collect();
    for shell in shells {
        let output = shell.wait_with_output().unwrap();
        assert!(output.status.success());
        assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 400);
    }
}

#[test]
fn a_missing_package_is_reported_with_the_command_that_installs_it() {
    let Some(bench) = prepare() else { return };
    for kernel in ["/nowhere/linux.uml", "/usr", "/etc/passwd"] {
        let output = bench.command("ls image:/").env("OBENTO_LINUX", kernel).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{kernel}: {said}");
        let reported = said.contains("OBENTO_LINUX") && said.contains("apt-get install user-mode-linux");
        assert!(reported, "{kernel}: {said}");
    }
}

#[test]
fn a_file_size_limit_below_the_kernels_memory_is_reported_with_a_hint() {
    let Some(bench) = prepare() else { return };
    // Blocks of 512 bytes: 32 MiB.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 65536; exec \"$0\" ls image:/", env!("CARGO_BIN_EXE_obento")]);
    let output = command.current_dir(bench.path("")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("ulimit -f") && said.contains("a file may have only 32 MiB"), "{said}");
}

#[test]
fn the_kernel_sees_no_process_of_its_host() {
    let Some(bench) = prepare() else { return };
    let can_hide = Command::new("unshare").args(["-Urpf", "--mount-proc", "true"]).status();
    if !can_hide.is_ok_and(|status| status.success()) {
        return println!("skipped: this host shows its /proc to every name space");
    }
    let mut shell = shell_on(&bench);
    let name_space = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = name_space(std::process::id());
    let is_seen = |pid: u32| {
        let processes = fs::read_dir(format!("/proc/{pid}/root/proc")).unwrap().flatten();
        processes.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok()).count()
    };
    let inner: Vec<u32> = processes_of(shell.id())
        .into_iter()
        .filter(|&pid| name_space(pid).is_some_and(|seen| Some(seen) != own))
        .collect();
    assert!(!inner.is_empty());
    for &pid in &inner {
        assert!(
            is_seen(pid) <= inner.len(),
            "it sees {} processes, of which {} are its own",
            is_seen(pid),
            inner.len()
        );
    }
    drop(shell.stdin.take());
    shell.wait().unwrap();
}
