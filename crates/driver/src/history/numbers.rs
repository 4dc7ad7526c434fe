//! The encoding of open files as numbers, with which a host passes them to the next host.

use obento_base::Ino;

use super::{Actor, OpenFile, OpenMode, Transferred};

/// Bits of the mode of an open file.
const READ: u64 = 1;
const WRITE: u64 = 2;

impl Actor {
    /// Returns process ID, start time, user, group, and the name of the program in two halves.
    pub fn to_numbers(&self) -> [u64; 6] {
        let (name, _) = self.comm.as_chunks::<8>();
        let name = [0, 1].map(|half| name.get(half).copied().map_or(0, u64::from_le_bytes));
        let [first, second] = name;
        [self.pid.into(), self.start, self.uid.into(), self.gid.into(), first, second]
    }

    /// Returns the actor that [`to_numbers`](Self::to_numbers) encoded. Returns `None` if a number is out of range.
    pub fn from_numbers([pid, start, uid, gid, name @ ..]: [u64; 6]) -> Option<Self> {
        let narrow = |number: u64| u32::try_from(number).ok();
        let actor = Self { pid: narrow(pid)?, start, uid: narrow(uid)?, gid: narrow(gid)?, comm: [0; 16] };
        Some(actor.with_comm(name.map(u64::to_le_bytes).as_flattened()))
    }
}

impl Transferred {
    fn to_numbers(self) -> [u64; 3] {
        [self.bytes, self.start, self.end]
    }

    fn from_numbers([bytes, start, end]: [u64; 3]) -> Option<Self> {
        (start <= end).then_some(Self { bytes, start, end })
    }
}

impl OpenFile {
    /// Returns the inode, the process, the number of opens, the mode, and the bytes read and written.
    pub fn to_numbers(&self) -> [u64; 15] {
        let Self { ino, actor, count, mode, read, written } = self;
        let [pid, start, uid, gid, name, rest] = actor.to_numbers();
        let mode = if mode.read { READ } else { 0 } | if mode.write { WRITE } else { 0 };
        let ([r0, r1, r2], [w0, w1, w2]) = (read.to_numbers(), written.to_numbers());
        [ino.0, pid, start, uid, gid, name, rest, (*count).into(), mode, r0, r1, r2, w0, w1, w2]
    }

    /// Returns the file that [`to_numbers`](Self::to_numbers) encoded. Returns `None` if a number is out of range.
    pub fn from_numbers(numbers: [u64; 15]) -> Option<Self> {
        let [ino, pid, start, uid, gid, name, rest, count, mode, r0, r1, r2, w0, w1, w2] = numbers;
        let count = u32::try_from(count).ok().filter(|&count| count > 0)?;
        if mode & !(READ | WRITE) != 0 {
            return None;
        }
        Some(Self {
            ino: Ino(ino),
            actor: Actor::from_numbers([pid, start, uid, gid, name, rest])?,
            count,
            mode: OpenMode { read: mode & READ != 0, write: mode & WRITE != 0 },
            read: Transferred::from_numbers([r0, r1, r2])?,
            written: Transferred::from_numbers([w0, w1, w2])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_equals_the_one_for_its_numbers_and_invalid_numbers_are_refused() {
        let actor = Actor { pid: 7, start: 8, uid: 9, gid: 10, comm: [0; 16] }.with_comm(b"a program name");
        let file = OpenFile {
            ino: Ino(11),
            actor,
            count: 2,
            mode: OpenMode { read: true, write: false },
            read: Transferred { bytes: 3, start: 1, end: 4 },
            written: Transferred::default(),
        };
        let numbers = file.to_numbers();
        assert_eq!(OpenFile::from_numbers(numbers), Some(file));
        for (place, wrong) in [(1, 1 << 32), (7, 0), (8, 4), (10, 5)] {
            let mut numbers = numbers;
            numbers[place] = wrong;
            assert_eq!(OpenFile::from_numbers(numbers), None, "number {place}");
        }
    }
}
