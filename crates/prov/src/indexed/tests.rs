use alloc::vec;

use obento_base::{Generation, Timestamp};
use obento_driver::FileSystem;
use obento_driver::history::OpenMode;
use obento_env::FixedClock;
use obento_tmpfs::{Options, Tmpfs};
use obento_vfs::Vfs;

use super::*;
use crate::files::Files;
use crate::recorded::DIRECTORY;
use crate::segment::segment_name;
use crate::writer::SegmentWriter;

fn process(pid: u32) -> Actor {
    Actor { pid, ..Actor::default() }
}

/// Returns the log with these records in segment 1. The first one has the sequence number 1.
fn log_of(records: &[Record<'_>]) -> IndexedLog {
    let clock = Arc::new(FixedClock(Timestamp::new(1_700_000_000, 1)));
    let fs: Arc<dyn FileSystem> =
        Arc::new(Tmpfs::new(Options { size: 64 << 20, inodes: 100, ..Options::new(clock) }));
    let mut segment = SegmentWriter::new(&Header { volume: [0; 16], number: 1, first: 1, boot: [0; 16] });
    records.iter().for_each(|record| segment.push(0, record));
    let files = Files::open(Arc::clone(&fs), DIRECTORY).unwrap();
    Files::write(&files.create(&segment_name(1)).unwrap(), 0, &segment.finish()).unwrap();
    let segments = Segments::of(&Vfs::new(fs)).unwrap().unwrap();
    IndexedLog::open(&segments, &mut |number, error| panic!("{number}: {error}"))
}

#[test]
fn a_definition_equal_to_the_last_one_is_left_out() {
    let id = ActorId(0);
    let pids = (0..1000).map(|at| at / 250 % 2);
    let records: Vec<_> = pids.map(|pid| Record::Actor { id, actor: process(pid) }).collect();
    let mut log = log_of(&records);
    assert_eq!(log.actor((0, 1000), id), process(1));
    let expected = vec![(1, process(0)), (251, process(1)), (501, process(0)), (751, process(1))];
    assert_eq!(log.actors.get(&(0, id)), Some(&expected));
}

#[test]
fn the_last_of_many_definitions_before_a_record_applies() {
    const COUNT: u32 = 20_000;
    let id = ActorId(0);
    let file = FileId { ino: Ino(5), generation: Generation(0) };
    let open = Record::Open { actor: id, file, mode: OpenMode { read: true, write: false } };
    let defined = (0..COUNT).map(|pid| Record::Actor { id, actor: process(pid) });
    let records: Vec<_> = [open].into_iter().chain(defined.flat_map(|record| [record, open])).collect();
    let mut log = log_of(&records);
    assert_eq!(log.actor((0, 1), id), Actor::default());
    for pid in 0..COUNT {
        // The definition has the number `2 * pid + 2`, and applies from the next record on.
        let at = u64::from(pid) * 2 + 3;
        assert_eq!(log.actor((0, at), id), process(pid));
        assert_eq!(log.actor((0, at + 1), id), process(pid));
    }
    assert_eq!(log.actor((0, u64::MAX), id), process(COUNT - 1));
}
