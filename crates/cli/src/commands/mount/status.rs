//! `--status`: the state of the servers of mounts, which they report over their control sockets.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use obento::block::CacheUse;
use obento::host::HostError;
use obento_fuse::handover::{Connection, Fields, Kind, Need, Parsed, StateError};
use obento_fuse::{MountPoint, WriteCache};

use super::own;
use crate::cause::Cause;
use crate::context::Context;
use crate::json::Line;
use crate::output::{Outcome, Output};
use crate::report::{LIST_MOUNTS, NOT_A_MOUNT, Report, foreign, printable, shell_word};

/// The state of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// The number of the process.
    pub process: u32,
    /// When the volume was mounted, and when this server took the mount, in seconds since 1970.
    pub mounted: u64,
    pub started: u64,
    /// The number of servers that passed the mount on.
    pub upgrades: u64,
    /// The number of servers that failed and were restarted.
    pub failovers: u64,
    /// The number of requests since the volume was mounted.
    pub requests: u64,
    /// The number of inodes that the kernel refers to.
    pub inodes: u64,
    /// The type of the volume.
    pub fs_type: String,
    pub read_only: bool,
    /// The volume has become read-only after an error.
    pub has_failed: bool,
    /// The use of the driver's cache of metadata; `None` if the driver has none, or the server reports none.
    pub cache: Option<CacheUse>,
    /// How the kernel caches written data; `None` if the server does not report it.
    pub write_cache: Option<WriteCache>,
    /// The reason why the server cannot be replaced, or nothing.
    pub obstacle: String,
}

/// The time that the servers of a user may take together. Failures count for all users, and replies for other users.
const PATIENCE: Duration = Duration::from_secs(2);

/// The time that the servers of each user have taken.
struct Waits {
    user: u32,
    taken: BTreeMap<u32, Duration>,
}

impl Waits {
    fn new(user: u32) -> Self {
        Self { user, taken: BTreeMap::new() }
    }

    /// Returns whether the servers of `owner` have taken all their time.
    fn are_over(&self, owner: Option<u32>) -> bool {
        owner.and_then(|owner| self.taken.get(&owner)).is_some_and(|taken| *taken >= PATIENCE)
    }

    /// Adds the time that a server of `owner` took until it replied or failed.
    fn add(&mut self, owner: Option<u32>, time: Duration, has_failed: bool) {
        if let Some(owner) = owner.filter(|owner| has_failed || *owner != self.user) {
            *self.taken.entry(owner).or_default() += time;
        }
    }
}

const VERSION: u16 = 1;
const PROCESS: u16 = 2;
const MOUNTED: u16 = 3;
const STARTED: u16 = 4;
const UPGRADES: u16 = 5;
const REQUESTS: u16 = 6;
const INODES: u16 = 7;
const FS_TYPE_OF_VOLUME: u16 = 8;
const READ_ONLY: u16 = 9;
const FAILED: u16 = 10;
const OBSTACLE: u16 = 11;
const FAILOVERS: u16 = 12;
const CACHE: u16 = 13;
const WRITE_CACHE: u16 = 14;

/// The encoding of [`WriteCache`], and the words for it.
const WRITE_CACHES: [(WriteCache, u8, &str); 3] =
    [(WriteCache::Off, 0, "off"), (WriteCache::On, 1, "on"), (WriteCache::Asking, 2, "asking for space")];

/// Encodes the use of a cache as three numbers.
fn encode_cache(cache: CacheUse) -> Vec<u8> {
    [cache.limit, cache.unchanged, cache.changed].into_iter().flat_map(u64::to_le_bytes).collect()
}

fn decode_cache(bytes: &[u8]) -> Option<CacheUse> {
    let (numbers, []) = bytes.as_chunks() else { return None };
    let [limit, unchanged, changed] =
        numbers.iter().map(|number| u64::from_le_bytes(*number)).collect::<Vec<_>>()[..]
    else {
        return None;
    };
    Some(CacheUse { limit, unchanged, changed })
}

fn word(write_cache: WriteCache) -> Option<(u8, &'static str)> {
    let found = WRITE_CACHES.iter().find(|(known, ..)| *known == write_cache);
    found.map(|&(_, byte, word)| (byte, word))
}

impl Status {
    /// Encodes the status. A reader may ignore each field.
    pub fn encode(&self) -> Vec<u8> {
        let numbers = [
            (PROCESS, self.process.into()),
            (MOUNTED, self.mounted),
            (STARTED, self.started),
            (UPGRADES, self.upgrades),
            (FAILOVERS, self.failovers),
            (REQUESTS, self.requests),
            (INODES, self.inodes),
            (READ_ONLY, self.read_only.into()),
            (FAILED, self.has_failed.into()),
        ];
        let texts =
            [(VERSION, &self.version), (FS_TYPE_OF_VOLUME, &self.fs_type), (OBSTACLE, &self.obstacle)];
        let fields = numbers.iter().fold(Fields::default(), |fields, (tag, number): &(u16, u64)| {
            fields.with(*tag, Need::Optional, &number.to_le_bytes())
        });
        let add =
            |fields: Fields, (tag, text): &(u16, &String)| fields.with(*tag, Need::Optional, text.as_bytes());
        let fields = texts.iter().fold(fields, add);
        let caches = [
            (CACHE, self.cache.map(encode_cache)),
            (WRITE_CACHE, self.write_cache.and_then(word).map(|(byte, _)| vec![byte])),
        ];
        let known = caches.into_iter().filter_map(|(tag, value)| Some((tag, value?)));
        known.fold(fields, |fields, (tag, value)| fields.with(tag, Need::Optional, &value)).into_bytes()
    }

    fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let mut fields = Parsed::of(bytes)?;
        // The server may belong to another user.
        let mut text = |tag| fields.text(tag).map(|text: String| foreign(&text));
        let (version, fs_type, obstacle) = (text(VERSION)?, text(FS_TYPE_OF_VOLUME)?, text(OBSTACLE)?);
        // A server of an earlier version reports none of them.
        let (cache, write_cache) = (fields.optional(CACHE)?, fields.optional(WRITE_CACHE)?);
        let cache = cache.map(|bytes| decode_cache(bytes).ok_or(StateError::Invalid(CACHE))).transpose()?;
        let write_cache = write_cache.and_then(|bytes| {
            WRITE_CACHES.iter().find(|(_, byte, _)| bytes == [*byte]).map(|&(write_cache, ..)| write_cache)
        });
        Ok(Self {
            version,
            process: fields.narrow(PROCESS)?,
            mounted: fields.number(MOUNTED)?,
            started: fields.number(STARTED)?,
            upgrades: fields.number(UPGRADES)?,
            failovers: fields.number(FAILOVERS)?,
            requests: fields.number(REQUESTS)?,
            inodes: fields.number(INODES)?,
            fs_type,
            read_only: fields.flag(READ_ONLY)?,
            has_failed: fields.flag(FAILED)?,
            cache,
            write_cache,
            obstacle,
        })
    }
}

/// Returns the seconds since 1970.
pub fn now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs())
}

/// Prints the state of the server of the mount at `directory`, or of all mounts.
pub fn run(directory: Option<&Path>, context: &Context) -> Outcome {
    let mounts = match directory.map(mounts_at).transpose() {
        Ok(mounts) => mounts.unwrap_or_else(own::mounts),
        Err(report) => {
            context.warn(&report);
            return Ok(());
        }
    };
    let mut out = Output::stdout();
    // A user can have many mounts, and each server could take the longest time.
    let mut waits = Waits::new(rustix::process::geteuid().as_raw());
    for mount in mounts {
        if waits.are_over(mount.owner()) {
            context.warn(&cannot(&mount.path, "other servers of this user did not respond in time"));
            continue;
        }
        let begin = Instant::now();
        let answer = ask(&mount);
        waits.add(mount.owner(), begin.elapsed(), answer.is_err());
        match answer {
            Ok(status) => print(&mount, &status, context, &mut out)?,
            Err(why) => {
                let directory = shell_word(mount.path.as_os_str().as_bytes());
                let help = format!("if the server has ended, unmount the volume: obento umount {directory}");
                context.warn(&cannot(&mount.path, why).help(help));
            }
        }
    }
    out.finish()
}

fn cannot(directory: &Path, cause: impl Cause) -> Report {
    Report::on("cannot read the state of the mount at", directory.as_os_str().as_bytes(), cause)
}

/// Returns the mount at `directory`, or those of `--all` below it.
fn mounts_at(directory: &Path) -> Result<Vec<MountPoint>, Report> {
    let failed = |error: HostError| cannot(directory, error);
    if let Some(mount) = own::mount_at(directory).map_err(failed)? {
        return Ok(vec![mount]);
    }
    let mounts = own::mounts_below(directory).map_err(failed)?;
    match mounts.is_empty() {
        true => Err(cannot(directory, NOT_A_MOUNT).help(LIST_MOUNTS)),
        false => Ok(mounts),
    }
}

fn ask(mount: &MountPoint) -> Result<Status, String> {
    let connection = Connection::to_server(mount).map_err(|error| error.to_string())?;
    let text = |error: &dyn std::fmt::Display| format!("its server: {}", foreign(&error.to_string()));
    connection.send(Kind::Status, &[], &[]).map_err(|error| text(&error))?;
    let message = connection.expect(Kind::Report).map_err(|error| text(&error))?;
    Status::decode(&message.fields).map_err(|error| text(&error))
}

fn print(mount: &MountPoint, status: &Status, context: &Context, out: &mut Output) -> Outcome {
    let now = now();
    let (mounted, served) = (now.saturating_sub(status.mounted), now.saturating_sub(status.started));
    // The kernel enforces ro after a remount. The kernel does not notify the server.
    let read_only = status.read_only || mount.is_read_only();
    if context.json() {
        let line = Line::new("mount")
            .bytes("path", mount.path.as_os_str().as_bytes())
            .bytes("source", mount.source.as_os_str().as_bytes())
            .field("file_system", &status.fs_type)
            .field("version", &status.version)
            .field("pid", status.process)
            .field("mounted_seconds", mounted)
            .field("server_seconds", served)
            .field("upgrades", status.upgrades)
            .field("failovers", status.failovers)
            .field("requests", status.requests)
            .field("inodes", status.inodes)
            .field("read_only", read_only)
            .field("failed", status.has_failed)
            .field("cache_bytes", status.cache.map(|cache| cache.unchanged))
            .field("cache_limit", status.cache.map(|cache| cache.limit))
            .field("changed_bytes", status.cache.map(|cache| cache.changed))
            .field("write_cache", status.write_cache.and_then(word).map(|(_, word)| word))
            .field("upgradable", status.obstacle.is_empty())
            .field("obstacle", (!status.obstacle.is_empty()).then_some(&status.obstacle));
        return Ok(line.write(out)?);
    }
    let [path, source] = [&mount.path, &mount.source].map(|path| printable(path.as_os_str().as_bytes()));
    let access = match (status.has_failed, read_only) {
        (true, _) => "read-only after an error",
        (false, true) => "read-only",
        (false, false) => "read-write",
    };
    let mut text = format!(
        "{path}: {source}, {}, {access}\n  mounted for {mounted} s; requests: {}; inodes in use: {}\n  server: version {}, \
         pid {}, running for {served} s; replacements: {}; restarts: {}\n",
        status.fs_type,
        status.requests,
        status.inodes,
        status.version,
        status.process,
        status.upgrades,
        status.failovers,
    );
    text.push_str(&caches(status));
    if !status.obstacle.is_empty() {
        text.push_str(&format!("  the server cannot be replaced: {}\n", status.obstacle));
    }
    Ok(out.write_all(text.as_bytes())?)
}

/// Returns the line about caches, or nothing if the server reports none.
fn caches(status: &Status) -> String {
    let metadata = status.cache.map(|CacheUse { limit, unchanged, changed }| {
        format!("metadata cache: {unchanged} of {limit} bytes; changes not yet written: {changed} bytes")
    });
    let writes = status.write_cache.and_then(word).map(|(_, word)| format!("write-back cache: {word}"));
    let parts: Vec<String> = metadata.into_iter().chain(writes).collect();
    if parts.is_empty() { String::new() } else { format!("  {}\n", parts.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_servers_of_another_user_together_have_a_limited_time() {
        let (root, user, other) = (Some(0), Some(7), Some(8));
        let mut waits = Waits::new(0);
        for (has_failed, seconds) in [(true, 0.9), (false, 0.9)] {
            waits.add(user, Duration::from_secs_f64(seconds), has_failed);
            assert!(!waits.are_over(user));
        }
        waits.add(user, Duration::from_millis(200), true);
        assert!(waits.are_over(user) && !waits.are_over(other) && !waits.are_over(None));
        waits.add(root, Duration::from_secs(60), false);
        assert!(!waits.are_over(root), "replies of the user's own servers do not count");
        waits.add(root, PATIENCE, true);
        assert!(waits.are_over(root));
    }

    #[test]
    fn a_status_is_decoded_as_it_was_encoded() {
        let status = Status {
            version: "1.2.3".into(),
            process: 7,
            mounted: 1,
            started: 2,
            upgrades: 3,
            failovers: 6,
            requests: 4,
            inodes: 5,
            fs_type: "ext4".into(),
            read_only: false,
            has_failed: true,
            cache: None,
            write_cache: None,
            obstacle: String::new(),
        };
        assert_eq!(Status::decode(&status.encode()), Ok(status.clone()));
        assert!((1..status.encode().len()).all(|len| Status::decode(&status.encode()[..len]).is_err()));
        assert_eq!(caches(&status), "", "a server of an earlier version");
        let cache = CacheUse { limit: 1 << 25, unchanged: 8192, changed: 4096 };
        for (write_cache, _, word) in WRITE_CACHES {
            let status = Status { cache: Some(cache), write_cache: Some(write_cache), ..status.clone() };
            assert_eq!(Status::decode(&status.encode()), Ok(status.clone()));
            let line = "  metadata cache: 8192 of 33554432 bytes; changes not yet written: 4096 bytes; write-back cache: ";
            assert_eq!(caches(&status), format!("{line}{word}\n"));
        }
    }
}
