//! Creates many files in one request.

use std::collections::HashSet;

use obento_base::{Error, Ino, Result, Timestamp};
use obento_driver::{Bulk, FileSystem as _, Limits, NEW_FILE_MAX, NewFile};
use obento_linux_wire::{Answer, DATA_MAX, NewFile as Sent, Request, Times};

use crate::volume::{State, Volume, nonsense};

/// The most files of a request, so that their names fit it whatever their length.
const FILES: usize = 512;

impl Bulk for Volume {
    fn create_files(&self, dir: Ino, files: &[NewFile<'_>]) -> Vec<Result<()>> {
        let mut state = self.state();
        let (mut done, mut rest) = (Vec::with_capacity(files.len()), files);
        while let Some((first, _)) = rest.split_first() {
            let fits = self.limits().fits_owner(first.node.uid, first.node.gid);
            if first.bytes.len() > NEW_FILE_MAX || !fits || self.expect_name(first.name.as_bytes()).is_err() {
                done.push(Err(if fits { Error::Invalid } else { Error::OutOfRange }));
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let named = rest.iter().take_while(|file| self.expect_name(file.name.as_bytes()).is_ok()).count();
            let (portion, later) = rest.split_at(portion(&rest[..named], &self.limits()));
            match self.make_files(&mut state, dir, portion) {
                Ok(errnos) => done.extend(errnos),
                Err(error) => done.extend(portion.iter().map(|_| Err(error))),
            }
            rest = later;
        }
        done
    }
}

/// Returns how many of the first of `files` one request takes. A duplicate name waits for the next request,
/// because the files of one request may be created in any order.
fn portion(files: &[NewFile<'_>], limits: &Limits) -> usize {
    let (mut room, mut names) = (DATA_MAX, HashSet::new());
    let mut count = 0;
    for file in files.iter().take(FILES) {
        let is_one = file.bytes.len() <= NEW_FILE_MAX && limits.fits_owner(file.node.uid, file.node.gid);
        let left = room.checked_sub(file.bytes.len()).filter(|_| is_one);
        let Some(left) = left.filter(|_| names.insert(file.name)) else { break };
        (room, count) = (left, count + 1);
    }
    count
}

impl Volume {
    fn make_files(&self, state: &mut State, dir: Ino, files: &[NewFile<'_>]) -> Result<Vec<Result<()>>> {
        if !self.is_writable() {
            return Err(Error::ReadOnly);
        }
        self.directory(state, dir)?;
        let bytes: Vec<_> = files.iter().map(|file| file.bytes).collect();
        let request =
            Request::MakeFiles { dir: dir.0, files: files.iter().map(|file| self.sent(file)).collect() };
        let answer = self.ask_with(state, &[dir], request, &bytes.concat());
        state.changed(dir);
        state.nodes.made_unseen();
        match answer? {
            Answer::Made { errnos } if errnos.len() == files.len() => {
                let turn = self.engine.turn();
                let one = |errno| if errno == 0 { Ok(()) } else { Err(turn.trouble(errno).into()) };
                Ok(errnos.into_iter().map(one).collect())
            }
            _ => Err(nonsense()),
        }
    }

    fn sent(&self, file: &NewFile<'_>) -> Sent {
        let moment = |at: Option<Timestamp>| at.map(|at| self.kept_moment(at));
        Sent {
            name: file.name.as_bytes().to_vec(),
            mode: file.node.mode.bits(),
            uid: self.kept_owner(file.node.uid),
            gid: self.kept_owner(file.node.gid),
            times: Times { atime: moment(file.atime), mtime: moment(file.mtime) },
            len: u32::try_from(file.bytes.len()).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use obento_base::{DeviceNumber, FileKind, Mode, Name};
    use obento_driver::{Crash, NewNode, StoredProperties};

    use super::*;

    const LIMITS: Limits = Limits {
        name_max: 255,
        symlink_max: 4095,
        link_max: 1,
        file_size_max: u64::MAX,
        time_granularity: 1,
        uid_max: u32::MAX,
        gid_max: 0xff,
        keeps: StoredProperties::all(),
        crash: Crash::Repairable,
    };

    #[test]
    fn a_request_ends_before_a_name_comes_again_and_before_the_data_is_full() {
        let node = NewNode {
            kind: FileKind::Regular,
            mode: Mode::new(0o600),
            uid: 0,
            gid: 0,
            rdev: DeviceNumber::default(),
            target: b"",
        };
        let name = |text: &'static [u8]| Name::new(text).unwrap();
        let file = |text, bytes| NewFile { name: name(text), node, bytes, atime: None, mtime: None };
        let (some, long) = (vec![0; NEW_FILE_MAX], vec![0; NEW_FILE_MAX + 1]);
        assert_eq!(portion(&[file(b"a", b""), file(b"b", b""), file(b"a", b"")], &LIMITS), 2);
        assert_eq!(portion(&[file(b"a", b""), file(b"b", &long)], &LIMITS), 1);
        let foreign = NewFile { node: NewNode { gid: 0x100, ..node }, ..file(b"b", b"") };
        assert_eq!(portion(&[file(b"a", b""), foreign], &LIMITS), 1);
        let names: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];
        assert_eq!(portion(&names.map(|text| file(text, &some)), &LIMITS), DATA_MAX / NEW_FILE_MAX);
    }
}
