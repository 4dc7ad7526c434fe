//! PostgreSQL.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};

use super::is_whole;
use crate::failover::{failures, kill_server};
use crate::support::{Disk, text, wait_until};

const BINARIES: &str = "/usr/lib/postgresql/15/bin";
const CLIENTS: &str = "4";

/// A cluster on a mount. Its socket and logs are outside of the mount.
struct Cluster<'d> {
    disk: &'d Disk,
    own: PathBuf,
}

impl Cluster<'_> {
    /// A command that runs as the user of PostgreSQL, who may not be root.
    fn command(&self, name: &str, args: &[&str]) -> Command {
        let mut command = program("runuser");
        command.args(["-u", "postgres", "--"]).arg(Path::new(BINARIES).join(name)).args(args);
        command.env("PGHOST", &self.own).env("PGDATABASE", "postgres").env("PGDATA", self.disk.path("data"));
        command.current_dir(&self.own).stdin(Stdio::null());
        command
    }

    fn run(&self, name: &str, args: &[&str]) -> String {
        text(&run(&mut self.command(name, args)).unwrap().stdout)
    }

    fn start(&self) {
        let options = format!("-c listen_addresses= -c unix_socket_directories={}", self.own.display());
        let log = self.own.join("log");
        self.run("pg_ctl", &["start", "-w", "-l", log.to_str().unwrap(), "-o", &options]);
    }

    fn query(&self, sql: &str) -> Vec<i64> {
        let answer = self.run("psql", &["-A", "-t", "-F", " ", "-c", sql]);
        answer.split_whitespace().map(|number| number.parse().unwrap()).collect()
    }

    /// Ends the processes of the cluster, whose files are gone.
    fn kill(&self) {
        let all = ["-u", "postgres", "-x", "postgres"];
        wait_until("the end of PostgreSQL", || {
            let _ = program("pkill").arg("-KILL").args(all).output();
            !program("pgrep").args(all).output().unwrap().status.success()
        });
    }
}

/// Counts the transactions in the logs of pgbench in `folder`: a line for each.
fn committed(folder: &Path) -> i64 {
    let logs = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let logs = logs.filter(|path| path.to_string_lossy().contains("pgbench_log"));
    logs.map(|path| fs::read_to_string(path).unwrap().matches('\n').count() as i64).sum()
}

/// Creates and starts a cluster on a mount, with the tables of pgbench.
fn cluster(disk: &Disk) -> Cluster<'_> {
    fs::set_permissions(disk.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    let own = disk.folder().join("own");
    for folder in [&own, &disk.path("data")] {
        fs::create_dir(folder).unwrap();
        run(program("chown").arg("postgres").arg(folder)).unwrap();
    }
    let cluster = Cluster { disk, own };
    cluster.run("initdb", &["--data-checksums"]);
    cluster.start();
    cluster.run("pgbench", &["-i", "-q", "-s", "10"]);
    cluster
}

/// The sums of the tables of pgbench, which are equal if each transaction is present in full or not at all.
const SUMS: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts), \
    (SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(tbalance) FROM pgbench_tellers), \
    (SELECT coalesce(sum(delta), 0) FROM pgbench_history)";

#[test]
#[ignore = "a campaign: cargo xtask failover"]
fn postgresql_continues_while_the_server_is_killed() {
    if !require(&[Oracle::Fuse, Oracle::Root, Oracle::Program("runuser")]) {
        return;
    }
    let Some(disk) = Disk::sized("2G", &[]) else { return };
    disk.mount("rw,allow_other,failover=1000");
    let cluster = cluster(&disk);
    let kills = failures();
    // A report a second, and a kill after each.
    let duration = (kills + 5).to_string();
    let args = ["-n", "-c", CLIENTS, "-j", "2", "-T", &duration, "-l", "-P", "1"];
    let mut load =
        cluster.command("pgbench", &args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let reports = BufReader::new(load.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut killed = 0;
    for line in reports {
        assert!(line.starts_with("progress") || line.starts_with("pgbench"), "{line}");
        if killed < kills {
            kill_server(&disk);
            killed += 1;
        }
    }
    assert!(load.wait().unwrap().success());
    assert_eq!(killed, kills);
    let committed = committed(&cluster.own);
    assert_eq!(cluster.query("SELECT count(*) FROM pgbench_history"), [committed]);
    let sums = cluster.query(SUMS);
    assert!(sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
    println!("{committed} transactions were committed while the server was killed {killed} times");
    cluster.run("pg_ctl", &["stop", "-w", "-m", "fast"]);
    cluster.run("pg_checksums", &["--check"]);
    disk.umount();
    disk.fsck();
}

#[test]
#[ignore = "a campaign: cargo xtask databases"]
fn transactions_of_postgresql_survive_a_kill_of_the_server() {
    if !require(&[Oracle::Fuse, Oracle::Root, Oracle::Program("runuser"), Oracle::Program("pgrep")]) {
        return;
    }
    let (rounds, seconds) = if is_whole() { (5, 60) } else { (2, 10) };
    let Some(disk) = Disk::sized("2G", &[]) else { return };
    disk.mount("rw,allow_other");
    let cluster = cluster(&disk);
    cluster.run("psql", &["-q", "-c", "CREATE EXTENSION amcheck"]);
    for round in 1..=rounds {
        let (duration, seed) = ((2 * seconds).to_string(), round.to_string());
        let args = ["-n", "-c", CLIENTS, "-j", "2", "-T", &duration, "-l", "-P", "1", "--random-seed", &seed];
        let mut load =
            cluster.command("pgbench", &args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut reports = BufReader::new(load.stderr.take().unwrap()).lines().map_while(Result::ok);
        // A report a second.
        assert_eq!(
            reports.by_ref().filter(|line| line.starts_with("progress")).take(seconds).count(),
            seconds
        );
        rustix::process::kill_process(disk.server(), rustix::process::Signal::KILL).unwrap();
        cluster.kill();
        reports.for_each(drop);
        load.wait().unwrap();
        disk.clear_killed();
        disk.mount_after_kill_with("rw,allow_other");
        cluster.start();
        cluster.run("pg_amcheck", &["--heapallindexed", "--rootdescend", "--install-missing"]);
        let committed = committed(&cluster.own);
        let kept = cluster.query("SELECT count(*) FROM pgbench_history")[0];
        assert!(
            kept >= committed,
            "round {round}: {committed} transactions were committed, {kept} are there"
        );
        let sums = cluster.query(SUMS);
        assert!(sums.iter().all(|sum| *sum == sums[0]), "round {round}: {sums:?}");
        println!("round {round}: {committed} transactions were committed, {kept} are there");
    }
    cluster.run("pg_ctl", &["stop", "-w", "-m", "fast"]);
    cluster.run("pg_checksums", &["--check"]);
    disk.umount();
}
