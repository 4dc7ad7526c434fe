//! A server of our own that does what its mood says. It shares no code with the client.

pub mod store;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// What the server does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mood {
    Sound,
    /// Never answers a READ.
    Hangs,
    /// Ends the first connection at the first READ.
    RestartsOnce,
    /// Ends each connection at a READ.
    Dies,
    /// Announces a record of 2 GiB.
    HugeRecord,
    /// Sends a reply that is cut off.
    Cut,
    /// Sends replies to other calls before the right one.
    OtherNumbers,
    /// Reports that each file is stale.
    Stale,
    /// Is not ready for the first two calls of LOOKUP and of READ.
    NotReady,
    /// Is never ready for calls of this procedure. It has files that can be changed.
    NeverReady(u32),
    /// Lists the root as an entry of itself.
    Loop,
    /// Lists a name with a slash.
    Slash,
    /// Lists new files without an end.
    Endless,
    /// Lists `.` without an end.
    EndlessDots,
    /// Lists new directories without an end, each with such directories.
    EndlessTree,
    /// Has a directory that is below itself.
    Cycle,
    /// Lists the same cookie again and again.
    SameCookie,
    /// Returns at most 1000 bytes for each READ.
    Short,
    /// Returns more bytes than a READ asked for.
    Long,
    /// Rejects the credentials.
    Rejects,
    /// Sends each reply in records of one byte.
    Fragments,
    /// Has files that can be changed.
    Changes,
    /// Also has such files. Ends the connection at each change, after it performed the change.
    LosesReplies,
    /// Restarts before the first COMMIT, and loses the data that was not committed.
    LosesData,
    /// Writes at most 3000 bytes for each WRITE.
    WritesShort,
    /// Supports no exclusive CREATE.
    NoExclusive,
    /// Has files that can be changed, of at most 1 MiB.
    SmallFiles,
}

/// The first handle of the files that a listing without an end creates.
const NEW_FILES: u32 = 1 << 16;
/// The first handle of directories of this kind.
const NEW_DIRECTORIES: u32 = 1 << 31;

/// The contents of the file.
pub fn contents() -> Vec<u8> {
    (0..100_000_u32).flat_map(u32::to_be_bytes).collect()
}

/// Returns the attributes of a file.
pub fn attributes(handle: u32) -> Vec<u8> {
    let (kind, size) = match handle {
        1 | 4 | 5 | NEW_DIRECTORIES.. => (2, 4096),
        3 => (5, 4),
        NEW_FILES.. => (1, 0),
        _ => (1, 400_000_u64),
    };
    let mut to = Vec::new();
    for word in [kind, 0o640, 1, 10, 20] {
        put(&mut to, word);
    }
    to.extend(size.to_be_bytes());
    to.extend(size.to_be_bytes());
    to.extend([0; 8]);
    to.extend(7_u64.to_be_bytes());
    to.extend(u64::from(handle).to_be_bytes());
    for word in [100, 1, 200, 2, 300, 3] {
        put(&mut to, word);
    }
    to
}

fn put(to: &mut Vec<u8>, word: u32) {
    to.extend(word.to_be_bytes());
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put(to, bytes.len() as u32);
    to.extend(bytes);
    to.resize(to.len().next_multiple_of(4), 0);
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn optional(handle: u32) -> Vec<u8> {
    [1_u32.to_be_bytes().to_vec(), attributes(handle)].concat()
}

/// A running server.
pub struct Fake {
    pub port: u16,
    /// READs that it received.
    pub reads: Arc<AtomicU32>,
    /// The files that can be changed.
    pub store: Arc<Mutex<store::Store>>,
}

impl Fake {
    pub fn start(mood: Mood) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let reads = Arc::new(AtomicU32::new(0));
        let (counted, store) = (reads.clone(), Arc::<Mutex<store::Store>>::default());
        let files = store.clone();
        // It ends with the test program.
        std::thread::spawn(move || {
            let lookups = Arc::new(AtomicU32::new(0));
            for stream in listener.incoming().map_while(Result::ok) {
                let (reads, lookups, files) = (counted.clone(), lookups.clone(), files.clone());
                std::thread::spawn(move || serve(stream, mood, &reads, &lookups, &files));
            }
        });
        Self { port, reads, store }
    }
}

fn serve(
    mut stream: TcpStream,
    mood: Mood,
    reads: &AtomicU32,
    lookups: &AtomicU32,
    files: &Mutex<store::Store>,
) -> Option<()> {
    let has_store = [
        Mood::Changes,
        Mood::LosesReplies,
        Mood::LosesData,
        Mood::WritesShort,
        Mood::NoExclusive,
        Mood::SmallFiles,
    ]
    .contains(&mood)
        || matches!(mood, Mood::NeverReady(_));
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).ok()?;
        let mut call = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut call).ok()?;
        let (number, program, procedure) = (word(&call, 0), word(&call, 12), word(&call, 20));
        let credentials = word(&call, 28) as usize;
        let arguments = &call[32 + credentials + 8..];
        let is_read = program == 100_003 && procedure == 6;
        let mut is_ready = program != 100_003 || mood != Mood::NeverReady(procedure);
        if is_read {
            let earlier = reads.fetch_add(1, Ordering::Relaxed);
            match mood {
                Mood::NotReady => is_ready = earlier >= 2,
                Mood::Hangs => continue,
                Mood::RestartsOnce if earlier == 0 => return None,
                Mood::Dies => return None,
                _ => {}
            }
        }
        let results = match program {
            100_005 => export(),
            _ if !is_ready => [10008_u32.to_be_bytes(), [0; 4]].concat(),
            _ if has_store => {
                let mut files = files.lock().unwrap();
                let results = files.results(procedure, arguments, mood);
                if files.loses(mood, procedure, number) {
                    return None;
                }
                results
            }
            _ => results(procedure, arguments, mood, lookups),
        };
        let mut reply = Vec::new();
        for word in [number, 1, u32::from(mood == Mood::Rejects && program == 100_003), 0, 0, 0] {
            put(&mut reply, word);
        }
        reply.extend(results);
        if program == 100_003 {
            match mood {
                Mood::HugeRecord if is_read => {
                    stream.write_all(&0xffff_ffff_u32.to_be_bytes()).ok()?;
                    continue;
                }
                Mood::Cut if is_read => reply.truncate(40),
                Mood::OtherNumbers => {
                    let mut other = reply.clone();
                    other[..4].copy_from_slice(&number.wrapping_sub(1000).to_be_bytes());
                    send(&mut stream, &other)?;
                }
                Mood::Fragments if !is_read => {
                    for (index, byte) in reply.iter().enumerate() {
                        let last = if index + 1 == reply.len() { 1 << 31 } else { 0 };
                        stream.write_all(&(last | 1_u32).to_be_bytes()).ok()?;
                        stream.write_all(&[*byte]).ok()?;
                    }
                    continue;
                }
                _ => {}
            }
        }
        send(&mut stream, &reply)?;
    }
}

fn send(stream: &mut TcpStream, reply: &[u8]) -> Option<()> {
    stream.write_all(&(0x8000_0000 | reply.len() as u32).to_be_bytes()).ok()?;
    stream.write_all(reply).ok()
}

fn export() -> Vec<u8> {
    let mut to = vec![0; 4];
    put_bytes(&mut to, &1_u32.to_be_bytes());
    put(&mut to, 1);
    put(&mut to, 1);
    to
}

/// Returns a part of a listing without an end.
fn endless(handle: u32, from: u64, mood: Mood) -> Vec<u8> {
    let mut to = [optional(handle), vec![9; 8]].concat();
    for cookie in from + 1..=from + 100 {
        let first = if mood == Mood::EndlessTree { NEW_DIRECTORIES } else { NEW_FILES };
        // The handles of two directories differ.
        let found = first + (handle.wrapping_mul(0x9e37) & 0xffff) * 0x1000 + cookie as u32;
        let name = if mood == Mood::EndlessDots { ".".into() } else { format!("{cookie:09}") };
        put(&mut to, 1);
        to.extend(u64::from(found).to_be_bytes());
        put_bytes(&mut to, name.as_bytes());
        to.extend(cookie.to_be_bytes());
        to.extend(optional(found));
        put(&mut to, 1);
        put_bytes(&mut to, &found.to_be_bytes());
    }
    put(&mut to, 0);
    put(&mut to, 0);
    to
}

fn results(procedure: u32, arguments: &[u8], mood: Mood, lookups: &AtomicU32) -> Vec<u8> {
    let handle = word(arguments, 4);
    let mut to = vec![0; 4];
    match procedure {
        1 if mood == Mood::Stale && handle != 1 => return 70_u32.to_be_bytes().to_vec(),
        1 => to.extend(attributes(handle)),
        3 => {
            if mood == Mood::NotReady && lookups.fetch_add(1, Ordering::Relaxed) < 2 {
                return [10008_u32.to_be_bytes(), [0; 4]].concat();
            }
            let len = word(arguments, 8) as usize;
            let found = match &arguments[12..12 + len] {
                b"file" => 2_u32,
                b"link" => 3,
                b"dir" => 4,
                _ => return [2_u32.to_be_bytes(), [0; 4]].concat(),
            };
            put_bytes(&mut to, &found.to_be_bytes());
            // Without attributes, so that the client must ask for them.
            to.extend(if found == 3 { vec![0; 4] } else { optional(found) });
            put(&mut to, 0);
        }
        5 => {
            to.extend(optional(3));
            put_bytes(&mut to, b"file");
        }
        6 => {
            let at = u64::from_be_bytes(arguments[8..16].try_into().unwrap()) as usize;
            let asked = word(arguments, 16) as usize;
            let whole = contents();
            let len = match mood {
                Mood::Short => asked.min(1000),
                Mood::Long => asked + 4,
                _ => asked,
            };
            let end = whole.len().min(at + len);
            let data = &whole[at.min(end)..end];
            put(&mut to, 0);
            put(&mut to, data.len() as u32);
            put(&mut to, u32::from(end == whole.len()));
            put_bytes(&mut to, data);
        }
        17 if [Mood::Endless, Mood::EndlessDots, Mood::EndlessTree].contains(&mood) => {
            to.extend(endless(handle, u64::from_be_bytes(arguments[8..16].try_into().unwrap()), mood));
        }
        17 => {
            let from = u64::from_be_bytes(arguments[8..16].try_into().unwrap());
            let names: &[(&[u8], u32)] = match mood {
                Mood::Loop => &[(b"file", 2), (b"again", 1)],
                Mood::Slash => &[(b"a/b", 2)],
                _ => &[(b".", 1), (b"..", 1), (b"file", 2), (b"link", 3), (b"dir", 4)],
            };
            to.extend(optional(handle));
            to.extend([9; 8]);
            let entries = match (handle, mood) {
                (1, _) => names,
                (4, Mood::Cycle) => &[(&b"inner"[..], 5)][..],
                (5, Mood::Cycle) => &[(&b"outer"[..], 4)][..],
                _ => &[],
            };
            // Two entries in each part.
            let mut is_last = true;
            for (&(name, found), cookie) in
                entries.iter().zip(10_u64..).skip((from.max(9) - 9) as usize).take(3)
            {
                if cookie == from.max(9) + 3 {
                    is_last = false;
                    break;
                }
                put(&mut to, 1);
                to.extend(u64::from(found).to_be_bytes());
                put_bytes(&mut to, name);
                to.extend(if mood == Mood::SameCookie { 12 } else { cookie }.to_be_bytes());
                // The link comes without attributes and handle.
                if found == 3 {
                    to.extend([0; 8]);
                } else {
                    to.extend(optional(found));
                    put(&mut to, 1);
                    put_bytes(&mut to, &found.to_be_bytes());
                }
                is_last = cookie - 10 + 1 == entries.len() as u64;
            }
            put(&mut to, 0);
            put(&mut to, u32::from(is_last));
        }
        18 => {
            put(&mut to, 0);
            for number in [1 << 30, 1 << 29, 1 << 28, 1000, 900, 0_u64] {
                to.extend(number.to_be_bytes());
            }
        }
        19 => {
            put(&mut to, 0);
            put(&mut to, 8192);
            to.extend([0; 40]);
        }
        _ => return 10004_u32.to_be_bytes().to_vec(),
    }
    to
}
