//! Databases with their own benchmarks: PostgreSQL with pgbench, Redis with redis-benchmark, and an LSM tree of RocksDB
//! or LevelDB with db_bench. Also dbench with its load file.
//!
//! They require a path, and are reported as absent if their programs are not installed. Servers listen on a socket in a
//! private folder, and not on the network.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use obento::engine::tools::find_program;
use obento::host::HostDir;

use crate::error::{IoContext as _, command_of, run};
use crate::workload::{Measure, Phase, Settings, Workload, WorkloadContext};
use crate::{BenchError, Result};

/// The longest time that a server may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// The scale of pgbench (`-s`), in units of 100,000 rows.
const PG_SCALE: u64 = 10;
const CLIENTS: usize = 4;
/// The number of keys of the LSM tree, with values of 100 bytes (the default of db_bench).
const KEYS: u64 = 1_000_000;
/// The least run time. dbench does not count the first seconds.
const DBENCH_SECONDS: u64 = 5;
/// The place of Debian's PostgreSQL servers, with one folder for each version.
const POSTGRES: &str = "/usr/lib/postgresql";
/// The user of the server, which refuses to run as root.
const POSTGRES_USER: &str = "postgres";

/// A database and its benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Database {
    /// The transactions of pgbench with 4 clients (`pgbench -c 4`, its variant of TPC-B).
    Postgres,
    /// `SET` commands, each synced to the log (`appendfsync always`).
    Redis,
    /// `db_bench --benchmarks=fillseq,fillrandom,readrandom`.
    Lsm,
    /// The load file of dbench with 4 clients.
    Dbench,
}

impl Workload for Database {
    fn prepare(&self, context: &WorkloadContext) -> Result<()> {
        let folder = context.folder()?;
        match self {
            Self::Postgres => Postgres::new(folder)?.make(context),
            Self::Redis => run(command_of("redis-server").arg("--version")).map(drop),
            Self::Lsm => db_bench().map(drop),
            Self::Dbench => found("dbench", &[]).map(drop),
        }
    }

    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let folder = context.folder()?;
        match self {
            Self::Postgres => Postgres::new(folder)?.measure(context),
            Self::Redis => redis(folder, context),
            Self::Lsm => lsm(folder, context),
            Self::Dbench => dbench(folder, context),
        }
    }

    fn needs(&self, settings: &Settings) -> u64 {
        match self {
            Self::Postgres => (settings.scaled(PG_SCALE) * 16 + 128) << 20,
            Self::Lsm => settings.scaled(KEYS) * 400 + (64 << 20),
            Self::Redis | Self::Dbench => 256 << 20,
        }
    }
}

fn phase(name: &str, measure: Measure, seconds: f64, operations: f64, bytes: f64) -> Phase {
    let (operations, bytes) = (operations.round() as u64, bytes.round() as u64);
    Phase { name: name.into(), measure, seconds, operations, bytes, percentiles: Default::default() }
}

/// Returns the first of `words` that is a number.
fn number<'t>(mut words: impl Iterator<Item = &'t str>) -> Option<f64> {
    words.find_map(|word| word.trim_matches(|c: char| !c.is_ascii_digit() && c != '.').parse().ok())
}

fn unknown(program: &str) -> BenchError {
    BenchError::Program { program: program.into(), message: "it printed unexpected output".into() }
}

/// Returns the path of a program in PATH or in `others`. Fails with `Absent`.
fn found(program: &str, others: &[PathBuf]) -> Result<PathBuf> {
    let elsewhere = || others.iter().map(|folder| folder.join(program)).find(|file| file.is_file());
    find_program(program)
        .or_else(elsewhere)
        .ok_or_else(|| BenchError::Absent(format!("{program} is not installed")))
}

/// A server that is stopped on drop.
struct Server(Child);

impl Server {
    /// Starts a server, and waits until the file `ready` exists.
    fn start(command: &mut Command, ready: &Path) -> Result<Self> {
        let name = command.get_program().to_owned();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut server = Self(child.during("start", &name)?);
        let begin = Instant::now();
        while !ready.exists() {
            let ended = server.0.try_wait().during("wait for", &name)?;
            if ended.is_some() || begin.elapsed() > PATIENCE {
                let message =
                    ended.map_or("it does not accept connections".into(), |status| status.to_string());
                return Err(BenchError::Program { program: name.display().to_string(), message });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Redis and PostgreSQL close their files after this signal.
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Postgres {
    /// Folders of programs in addition to PATH.
    bins: Vec<PathBuf>,
    data: PathBuf,
}

impl Postgres {
    fn new(folder: &Path) -> Result<Self> {
        let versions = fs::read_dir(POSTGRES).into_iter().flatten().flatten();
        let mut bins: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
        bins.sort();
        ["initdb", "postgres", "pgbench"].iter().try_for_each(|program| found(program, &bins).map(drop))?;
        Ok(Self { bins, data: folder.join("postgres") })
    }

    fn command(&self, program: &str) -> Command {
        let program = found(program, &self.bins).unwrap_or_else(|_| program.into());
        if !rustix::process::geteuid().is_root() {
            return command_of(program);
        }
        let mut command = command_of("setpriv");
        command
            .args(["--reuid", POSTGRES_USER, "--regid", POSTGRES_USER, "--clear-groups", "--"])
            .arg(program);
        command.current_dir("/");
        command
    }

    /// Returns a folder for the socket, whose path must be short.
    fn socket(&self) -> Result<tempfile::TempDir> {
        let folder = socket_folder()?;
        self.give(folder.path())?;
        Ok(folder)
    }

    fn give(&self, path: &Path) -> Result<()> {
        if rustix::process::geteuid().is_root() {
            run(command_of("chown").arg(format!("{POSTGRES_USER}:")).arg(path))?;
        }
        Ok(())
    }

    fn serve(&self, socket: &Path) -> Result<Server> {
        let mut command = self.command("postgres");
        command.arg("-D").arg(&self.data).arg("-k").arg(socket).args(["-c", "listen_addresses="]);
        Server::start(&mut command, &socket.join(".s.PGSQL.5432"))
    }

    fn client(&self, socket: &Path, arguments: &[String]) -> Result<String> {
        let mut command = self.command("pgbench");
        command.arg("-h").arg(socket).args(arguments).arg("postgres");
        let begin = Instant::now();
        loop {
            match run(&mut command) {
                // The server listens before it has recovered its files.
                Err(BenchError::Program { message, .. })
                    if message.contains("starting up") && begin.elapsed() < PATIENCE =>
                {
                    std::thread::sleep(Duration::from_millis(50));
                }
                done => return done,
            }
        }
    }

    fn make(&self, context: &WorkloadContext) -> Result<()> {
        fs::create_dir(&self.data).during("create", &self.data)?;
        self.give(&self.data)?;
        run(self.command("initdb").arg("-D").arg(&self.data).args(["-A", "trust", "-N"]))?;
        let socket = self.socket()?;
        let _server = self.serve(socket.path())?;
        let rows = context.settings.scaled(PG_SCALE).to_string();
        self.client(socket.path(), &["-i".into(), "-q".into(), "-s".into(), rows]).map(drop)
    }

    fn measure(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let socket = self.socket()?;
        let _server = self.serve(socket.path())?;
        let seconds = context.settings.run_time.as_secs().max(1);
        let clients = CLIENTS.to_string();
        let arguments = ["-c", &clients, "-j", "2", "-T", &seconds.to_string(), "-n"].map(str::to_owned);
        let said = self.client(socket.path(), &arguments)?;
        let line = said.lines().find_map(|line| line.strip_prefix("tps = "));
        let rate =
            number(line.into_iter().flat_map(str::split_whitespace)).ok_or_else(|| unknown("pgbench"))?;
        let seconds = seconds as f64;
        Ok(vec![phase("", Measure::Rate, seconds, rate * seconds, 0.0)])
    }
}

/// Creates a folder in a directory in which no other user can replace it. Its path is short and its owner changes.
fn socket_folder() -> Result<tempfile::TempDir> {
    let what = "a directory for a socket";
    let place = HostDir::open_trusted(&std::env::temp_dir()).during("create", what)?;
    tempfile::tempdir_in(place.path()).during("create", what)
}

fn redis(folder: &Path, context: &WorkloadContext) -> Result<Vec<Phase>> {
    let place = socket_folder()?;
    let socket = place.path().join("redis");
    let mut command = command_of("redis-server");
    command.arg("--dir").arg(folder).arg("--unixsocket").arg(&socket);
    command.args(["--port", "0", "--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
    let _server = Server::start(&mut command, &socket)?;
    let count = context.settings.scaled(100_000).to_string();
    let begin = Instant::now();
    let mut client = command_of("redis-benchmark");
    client.arg("-s").arg(&socket).args(["-t", "set", "-n", &count, "-q", "--csv"]);
    let said = run(&mut client)?;
    let seconds = begin.elapsed().as_secs_f64();
    let line = said.lines().find(|line| line.starts_with("\"SET\""));
    let rate = number(line.into_iter().flat_map(|line| line.split(',').skip(1)));
    let rate = rate.ok_or_else(|| unknown("redis-benchmark"))?;
    Ok(vec![phase("", Measure::Rate, seconds, rate * seconds, 0.0)])
}

fn db_bench() -> Result<PathBuf> {
    found("db_bench", &["/usr/lib/rocksdb".into(), "/usr/lib/leveldb".into()])
}

fn lsm(folder: &Path, context: &WorkloadContext) -> Result<Vec<Phase>> {
    let mut command = command_of(db_bench()?);
    let mut db: OsString = "--db=".into();
    db.push(folder.join("lsm"));
    command.arg(db).arg("--benchmarks=fillseq,fillrandom,readrandom");
    command.arg(format!("--num={}", context.settings.scaled(KEYS)));
    let said = run(&mut command)?;
    // `fillseq      :       1.123 micros/op ...`
    let lines = said.lines().filter_map(|line| line.split_once(':'));
    let phases: Vec<Phase> = lines
        .filter(|(name, _)| matches!(name.trim(), "fillseq" | "fillrandom" | "readrandom"))
        .filter_map(|(name, rest)| {
            let (micros, _) = rest.split_once("micros/op")?;
            let micros: f64 = micros.trim().parse().ok()?;
            let count = context.settings.scaled(KEYS) as f64;
            Some(phase(name.trim(), Measure::Rate, count * micros / 1e6, count, 0.0))
        })
        .collect();
    if phases.is_empty() { Err(unknown("db_bench")) } else { Ok(phases) }
}

fn dbench(folder: &Path, context: &WorkloadContext) -> Result<Vec<Phase>> {
    let seconds = context.settings.run_time.as_secs().max(DBENCH_SECONDS);
    let mut command = command_of(found("dbench", &[])?);
    command.arg("-D").arg(folder).args(["-t", &seconds.to_string(), &CLIENTS.to_string()]);
    let said = run(&mut command)?;
    // `Throughput 1234.5 MB/sec  4 clients  4 procs  max_latency=1.234 ms`
    let line = said.lines().find_map(|line| line.trim().strip_prefix("Throughput "));
    let rate = number(line.into_iter().flat_map(str::split_whitespace)).ok_or_else(|| unknown("dbench"))?;
    let bytes = rate * seconds as f64 * f64::from(1 << 20);
    Ok(vec![phase("", Measure::Throughput, seconds as f64, 1.0, bytes)])
}
