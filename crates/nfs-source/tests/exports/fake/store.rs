//! The files of a server that can be changed: all of them are in the root. It forgets the replies that it sent.

use std::collections::{BTreeMap, BTreeSet};

use super::{Mood, put, put_bytes, word};

/// `nfsstat3`.
const NOT_FOUND: u32 = 2;
const EXISTS: u32 = 17;
const NOT_SUPPORTED: u32 = 10004;

/// A file: `ftype3`, its attributes and its bytes, or the target of a link.
#[derive(Clone, Default)]
pub struct File {
    pub kind: u32,
    pub mode: u32,
    pub times: [u32; 2],
    pub bytes: Vec<u8>,
    verifier: Vec<u8>,
}

/// Files by handle, and handles by name.
pub struct Store {
    pub files: BTreeMap<u32, File>,
    pub names: BTreeMap<Vec<u8>, u32>,
    /// Changes with the start of the server.
    start: u64,
    /// Data that is lost when the server restarts.
    unstable: Vec<(u32, usize, Vec<u8>)>,
    /// Calls whose reply was lost.
    lost: BTreeSet<u32>,
    /// The procedures that were called.
    pub calls: Vec<u32>,
}

impl Default for Store {
    fn default() -> Self {
        let root = File { kind: 2, mode: 0o755, ..File::default() };
        let files = BTreeMap::from([(1, root)]);
        let (names, unstable, lost, calls) = Default::default();
        Self { files, names, start: 1, unstable, lost, calls }
    }
}

/// The arguments of a call.
struct Arguments<'a>(&'a [u8]);

impl<'a> Arguments<'a> {
    fn u32(&mut self) -> u32 {
        let value = word(self.0, 0);
        self.0 = &self.0[4..];
        value
    }

    fn u64(&mut self) -> u64 {
        u64::from(self.u32()) << 32 | u64::from(self.u32())
    }

    fn bytes(&mut self) -> &'a [u8] {
        let len = self.u32() as usize;
        let found = &self.0[..len];
        self.0 = &self.0[len.next_multiple_of(4)..];
        found
    }

    fn handle(&mut self) -> u32 {
        word(self.bytes(), 0)
    }

    /// Applies `sattr3` to a file.
    fn set(&mut self, file: &mut File) {
        if self.u32() == 1 {
            file.mode = self.u32();
        }
        for _ in 0..2 {
            if self.u32() == 1 {
                self.u32();
            }
        }
        if self.u32() == 1 {
            file.bytes.resize(self.u64() as usize, 0);
        }
        for time in &mut file.times {
            match self.u32() {
                0 => {}
                1 => *time = 1000,
                _ => (*time, _) = (self.u32(), self.u32()),
            }
        }
    }
}

impl Store {
    /// Returns whether the reply to a call is lost: that to the first sending of each change, and of one WRITE.
    pub fn loses(&mut self, mood: Mood, procedure: u32, number: u32) -> bool {
        let is_first_write = procedure == 7 && self.calls.iter().filter(|&&call| call == 7).count() == 1;
        let is_change = is_first_write || [2, 8, 9, 10, 11, 12, 13, 14, 15].contains(&procedure);
        mood == Mood::LosesReplies && is_change && self.lost.insert(number)
    }

    fn attributes(&self, handle: u32) -> Vec<u8> {
        let Some(file) = self.files.get(&handle) else { return vec![0; 4] };
        let links = self.names.values().filter(|&&named| named == handle).count().max(1);
        let mut to = Vec::new();
        for word in [1, file.kind, file.mode, links as u32, 10, 20] {
            put(&mut to, word);
        }
        to.extend((file.bytes.len() as u64).to_be_bytes());
        to.extend((file.bytes.len() as u64).to_be_bytes());
        to.extend([0; 8]);
        to.extend(7_u64.to_be_bytes());
        to.extend(u64::from(handle).to_be_bytes());
        for word in [file.times[0], 0, file.times[1], 0, 300, 0] {
            put(&mut to, word);
        }
        to
    }

    /// `wcc_data` without the attributes before the change.
    fn after(&self, handle: u32) -> Vec<u8> {
        [vec![0; 4], self.attributes(handle)].concat()
    }

    /// Adds a file, and returns the results of a call that creates files.
    fn add(&mut self, name: &[u8], file: File) -> Result<Vec<u8>, u32> {
        match self.names.get(name) {
            Some(known) if file.verifier.is_empty() || self.files[known].verifier != file.verifier => {
                return Err(EXISTS);
            }
            Some(_) => {}
            None => {
                let handle = self.files.keys().last().unwrap() + 1;
                self.files.insert(handle, file);
                self.names.insert(name.to_vec(), handle);
            }
        }
        let handle = self.names[name];
        let mut to = 1_u32.to_be_bytes().to_vec();
        put_bytes(&mut to, &handle.to_be_bytes());
        Ok([to, self.attributes(handle), self.after(1)].concat())
    }

    /// Returns the results of a call: a status, and what follows it.
    pub fn results(&mut self, procedure: u32, arguments: &[u8], mood: Mood) -> Vec<u8> {
        self.calls.push(procedure);
        match self.done(procedure, Arguments(arguments), mood) {
            Ok(results) => [vec![0; 4], results].concat(),
            // No attributes follow the status, in four places at most.
            Err(status) => [status.to_be_bytes().to_vec(), vec![0; 16]].concat(),
        }
    }

    fn done(&mut self, procedure: u32, mut from: Arguments<'_>, mood: Mood) -> Result<Vec<u8>, u32> {
        let handle = from.handle();
        let mut file = self.files.get(&handle).cloned().ok_or(70_u32)?;
        match procedure {
            1 => Ok(self.attributes(handle)[4..].to_vec()),
            2 => {
                from.set(&mut file);
                self.files.insert(handle, file);
                Ok(self.after(handle))
            }
            3 => {
                let found = *self.names.get(from.bytes()).ok_or(NOT_FOUND)?;
                let mut to = Vec::new();
                put_bytes(&mut to, &found.to_be_bytes());
                Ok([to, self.attributes(found), vec![0; 4]].concat())
            }
            5 => {
                let mut to = vec![0; 4];
                put_bytes(&mut to, &file.bytes);
                Ok(to)
            }
            6 => {
                let at = (from.u64() as usize).min(file.bytes.len());
                let data = &file.bytes[at..file.bytes.len().min(at + from.u32() as usize)];
                let mut to = vec![0; 4];
                put(&mut to, data.len() as u32);
                put(&mut to, u32::from(at + data.len() == file.bytes.len()));
                put_bytes(&mut to, data);
                Ok(to)
            }
            7 => {
                let (at, _, how, bytes) = (from.u64() as usize, from.u32(), from.u32(), from.bytes());
                let bytes = if mood == Mood::WritesShort { &bytes[..bytes.len().min(3000)] } else { bytes };
                if how == 0 {
                    let before = file.bytes.get(at..).map_or(Vec::new(), <[u8]>::to_vec);
                    self.unstable.push((handle, at, before));
                }
                file.bytes.resize(file.bytes.len().max(at + bytes.len()), 0);
                file.bytes[at..at + bytes.len()].copy_from_slice(bytes);
                self.files.insert(handle, file);
                let mut to = self.after(handle);
                put(&mut to, bytes.len() as u32);
                put(&mut to, how);
                to.extend(self.start.to_be_bytes());
                Ok(to)
            }
            8 => {
                let (name, how) = (from.bytes(), from.u32());
                let mut file = File { kind: 1, ..File::default() };
                match how {
                    2 if mood == Mood::NoExclusive => return Err(NOT_SUPPORTED),
                    2 => file.verifier = from.0[..8].to_vec(),
                    _ => from.set(&mut file),
                }
                self.add(name, file)
            }
            9 | 10 => {
                let mut file = File { kind: if procedure == 9 { 2 } else { 5 }, ..File::default() };
                let name = from.bytes();
                from.set(&mut file);
                if procedure == 10 {
                    file.bytes = from.bytes().to_vec();
                }
                self.add(name, file)
            }
            11 => {
                let name = from.bytes();
                let mut file = File { kind: from.u32(), ..File::default() };
                from.set(&mut file);
                self.add(name, file)
            }
            12 | 13 => {
                self.names.remove(from.bytes()).ok_or(NOT_FOUND)?;
                Ok(self.after(1))
            }
            14 => {
                let old = from.bytes();
                from.handle();
                let moved = self.names.remove(old).ok_or(NOT_FOUND)?;
                self.names.insert(from.bytes().to_vec(), moved);
                Ok([self.after(1), self.after(1)].concat())
            }
            15 => {
                from.handle();
                let name = from.bytes().to_vec();
                if self.names.contains_key(&name) {
                    return Err(EXISTS);
                }
                self.names.insert(name, handle);
                Ok([self.attributes(handle), self.after(1)].concat())
            }
            17 => Ok([&[0; 4][..], &[9; 8], &[0; 4], &1_u32.to_be_bytes()].concat()),
            19 => {
                let mut to = vec![0; 4];
                for word in [8192, 8192, 8, 8192, 8192, 8] {
                    put(&mut to, word);
                }
                // The preferred length of listings, the largest file, the resolution of times, and properties.
                put(&mut to, 8192);
                to.extend(if mood == Mood::SmallFiles { 1_u64 << 20 } else { 0 }.to_be_bytes());
                to.extend([0; 12]);
                Ok(to)
            }
            21 => {
                if mood == Mood::LosesData && self.start == 1 {
                    self.restart();
                }
                let mut to = self.after(handle);
                to.extend(self.start.to_be_bytes());
                Ok(to)
            }
            _ => Err(NOT_SUPPORTED),
        }
    }

    /// Restarts the server: data that was not committed is lost.
    fn restart(&mut self) {
        self.start += 1;
        for (handle, at, before) in std::mem::take(&mut self.unstable).into_iter().rev() {
            let file = self.files.get_mut(&handle).unwrap();
            file.bytes.truncate(at);
            file.bytes.extend(before);
        }
    }
}
