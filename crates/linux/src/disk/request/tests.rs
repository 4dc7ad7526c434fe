//! The guest's memory may contain anything, and no request reaches further than the disk and that memory.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use obento_block::MemDevice;
use obento_testkit::record::{Event, RecordDevice};
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::memory::MemoryPart;
use super::super::queue::Queue;
use super::*;

/// The guest's memory: an address, its length, and its position in its file, between bytes that do not belong to the guest.
const START: u64 = 0x1000;
const LEN: u64 = 0x4000;
const AROUND: u64 = 0x1000;

/// The layout of a test's queue: the descriptors at the start, then the available ring, then the used ring, then space for requests.
const DESCRIPTORS: u16 = 16;
const AVAILABLE: u64 = START + 0x200;
const USED: u64 = START + 0x300;
const ROOM: u64 = START + 0x400;

/// `VIRTQ_DESC_F_NEXT`, `_WRITE`, `_INDIRECT`.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

struct Guest {
    file: File,
    memory: Memory,
    queue: Queue,
}

impl Guest {
    fn new() -> Self {
        let file = tempfile::tempfile().unwrap();
        file.set_len(AROUND + LEN + AROUND).unwrap();
        let mut memory = Memory::default();
        let part = MemoryPart { start: START, len: LEN, offset: AROUND };
        memory.add(part, file.try_clone().unwrap().into()).unwrap();
        let len = u32::from(DESCRIPTORS);
        let queue = Queue { len, descriptors: START, available: AVAILABLE, used: USED, ..Queue::default() };
        Self { file, memory, queue }
    }

    fn put(&self, address: u64, bytes: &[u8]) {
        self.memory.write(address, bytes).unwrap();
    }

    fn bytes<const N: usize>(&self, address: u64) -> [u8; N] {
        self.memory.number(address).unwrap()
    }

    /// Writes descriptor `index` of the table at `table`.
    fn describe(&self, table: u64, index: u16, (address, len): (u64, u32), flags: u16, next: u16) {
        let raw = [&address.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()];
        self.put(table + 16 * u64::from(index), &raw.concat());
    }

    /// Offers the chain that begins at `head`, after `offered` other chains.
    fn offer(&self, head: u16, offered: u16) {
        self.put(AVAILABLE + 4 + 2 * u64::from(offered % DESCRIPTORS), &head.to_le_bytes());
        self.put(AVAILABLE + 2, &offered.wrapping_add(1).to_le_bytes());
    }

    /// Sends the request `kind` for `sector`, with `data` beside it. Returns the status.
    fn ask(
        &mut self,
        device: &dyn BlockDevice,
        (kind, sector): (u32, u64),
        data: (u64, u32),
        flags: u16,
    ) -> u8 {
        let head = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        let status = ROOM + 16;
        self.put(ROOM, &head);
        self.put(status, &[0xff]);
        self.describe(START, 0, (ROOM, 16), NEXT, 1);
        self.describe(START, 1, data, NEXT | flags, 2);
        self.describe(START, 2, (status, 1), WRITE, 0);
        self.offer(0, self.queue.taken);
        assert_eq!(self.work(device), 1);
        self.bytes::<1>(status)[0]
    }

    /// Executes the offered chains, as the disk does. Returns their number.
    fn work(&mut self, device: &dyn BlockDevice) -> u32 {
        let (mut buffer, mut done) = (Vec::new(), 0);
        while let Some(chain) = self.queue.next(&self.memory) {
            let (written, _) = serve(device, &self.memory, &chain, &mut buffer);
            self.queue.give_back(&self.memory, &chain, written);
            done += 1;
        }
        done
    }
}

/// A device of a given length that records its requests.
struct Recorder(Arc<MemDevice>, RecordDevice<Arc<MemDevice>>);

impl Recorder {
    fn new(len: usize) -> Self {
        let memory = Arc::new(MemDevice::new(vec![0x55; len]));
        Self(Arc::clone(&memory), RecordDevice::new(memory))
    }

    /// The ranges that were discarded since the last call.
    fn discarded(&self) -> Vec<Range<u64>> {
        self.1.take_events().iter().filter_map(Event::discarded).collect()
    }
}

fn segment(sector: u64, sectors: u32) -> Vec<u8> {
    [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &[0; 4]].concat()
}

const DATA: u64 = ROOM + 0x100;

#[test]
fn bytes_go_to_the_device_and_come_back() {
    let (mut guest, device) = (Guest::new(), Recorder::new(8192));
    guest.put(DATA, &[7; 512]);
    assert_eq!(guest.ask(&device.1, (kind::OUT, 3), (DATA, 512), 0), OK);
    assert_eq!(device.0.snapshot()[1535..2049], [&[0x55][..], &[7; 512], &[0x55]].concat());
    assert_eq!(guest.ask(&device.1, (kind::IN, 3), (DATA + 0x800, 512), WRITE), OK);
    assert_eq!(guest.bytes::<512>(DATA + 0x800), [7; 512]);
    assert_eq!(guest.ask(&device.1, (kind::IN, 16), (DATA, 512), WRITE), IO_ERROR, "past the end");
    assert_eq!(guest.ask(&device.1, (99, 0), (DATA, 512), 0), UNSUPPORTED);
}

#[test]
fn a_discard_reaches_the_device_and_zeros_are_there_afterwards() {
    let (mut guest, device) = (Guest::new(), Recorder::new(8192));
    guest.put(DATA, &segment(2, 4));
    assert_eq!(guest.ask(&device.1, (kind::DISCARD, 0), (DATA, 16), 0), OK);
    assert_eq!(device.discarded(), std::slice::from_ref(&(1024..3072)));
    assert_eq!(guest.ask(&device.1, (kind::WRITE_ZEROES, 0), (DATA, 16), 0), OK);
    assert_eq!(device.0.snapshot()[1023..3073], [&[0x55][..], &[0; 2048], &[0x55]].concat());
}

#[test]
fn a_discard_beyond_the_offered_limit_is_refused_completely() {
    let (mut guest, device) = (Guest::new(), Recorder::new(8192));
    let two = [segment(0, 1), segment(1, 1)].concat();
    let wrong = [
        (segment(0, DISCARD_SECTORS + 1), "more sectors"),
        (segment(0, u32::MAX), "two TiB"),
        (segment(u64::MAX, 1), "a sector outside of the disk"),
        (segment(15, 2), "past the end"),
        (two, "two segments"),
        (vec![0; 15], "a part of a segment"),
        (Vec::new(), "nothing"),
    ];
    for (bytes, what) in wrong {
        guest.put(DATA, &bytes);
        let data = (DATA, u32::try_from(bytes.len()).unwrap());
        assert_eq!(guest.ask(&device.1, (kind::DISCARD, 0), data, 0), IO_ERROR, "{what}");
        assert_eq!(guest.ask(&device.1, (kind::WRITE_ZEROES, 0), data, 0), IO_ERROR, "{what}");
    }
    assert_eq!(device.discarded(), []);
    assert!(device.0.snapshot().iter().all(|byte| *byte == 0x55));
}

#[test]
fn a_request_longer_than_the_maximum_is_refused_before_memory_is_allocated() {
    let (mut guest, device) = (Guest::new(), Recorder::new(8192));
    for (kind, flags) in [(kind::IN, WRITE), (kind::OUT, 0)] {
        assert_eq!(guest.ask(&device.1, (kind, 0), (DATA, u32::MAX), flags), IO_ERROR);
    }
    // The table refers to the same range several times.
    let count = 0x100_u16;
    for index in 0..count {
        guest.describe(DATA, index, (ROOM, 1 << 20), if index + 1 < count { NEXT } else { 0 }, index + 1);
    }
    guest.describe(START, 0, (DATA, 16 * u32::from(count)), INDIRECT, 0);
    guest.offer(0, guest.queue.taken);
    let chain = guest.queue.next(&guest.memory).unwrap();
    let mut buffer = Vec::new();
    assert_eq!(serve(&device.1, &guest.memory, &chain, &mut buffer).0, 0);
    assert_eq!(buffer.capacity(), 0);
}

#[test]
fn addresses_outside_the_memory_are_refused() {
    let (mut guest, device) = (Guest::new(), Recorder::new(8192));
    let end = START + LEN;
    for address in [0, START - 1, end - 511, end, u64::MAX - 511, u64::MAX] {
        assert_eq!(guest.ask(&device.1, (kind::OUT, 0), (address, 512), 0), IO_ERROR, "{address:#x}");
        assert_eq!(guest.ask(&device.1, (kind::IN, 0), (address, 512), WRITE), IO_ERROR, "{address:#x}");
    }
    assert_eq!(guest.ask(&device.1, (kind::OUT, 0), (end - 512, 512), 0), OK);
}

#[test]
fn memory_that_its_file_does_not_have_is_not_mapped() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(0x2000).unwrap();
    let parts =
        [(0, 0x2001, 0), (0, 0x2000, 1), (0, 0, 0), (0, u64::MAX, 0), (0, 1, u64::MAX), (u64::MAX, 2, 0)];
    for (start, len, offset) in parts {
        let part = MemoryPart { start, len, offset };
        assert!(Memory::default().add(part, file.try_clone().unwrap().into()).is_err(), "{part:?}");
    }
}

#[test]
fn requests_fail_if_the_guest_has_shortened_its_memory() {
    let device = Recorder::new(8192);
    for (kind, flags) in [(kind::OUT, 0), (kind::IN, WRITE)] {
        let mut guest = Guest::new();
        guest.file.set_len(AROUND + LEN - 0x1000).unwrap();
        assert!(!guest.memory.is_broken());
        let head = [&kind.to_le_bytes()[..], &[0; 12]].concat();
        guest.put(ROOM, &head);
        guest.describe(START, 0, (ROOM, 16), NEXT, 1);
        guest.describe(START, 1, (START + LEN - 512, 512), NEXT | flags, 2);
        guest.describe(START, 2, (ROOM + 16, 1), WRITE, 0);
        guest.offer(0, 0);
        let chain = guest.queue.next(&guest.memory).unwrap();
        assert_eq!(serve(&device.1, &guest.memory, &chain, &mut Vec::new()).0, 0);
        assert!(guest.memory.is_broken());
        assert!(guest.queue.next(&guest.memory).is_none());
    }
    assert!(device.0.snapshot().iter().all(|byte| *byte == 0x55), "nothing is written");
}

#[test]
fn descriptors_with_a_cycle_or_outside_of_their_table_are_rejected() {
    let mut guest = Guest::new();
    let room = (ROOM, 16);
    guest.describe(START, 0, room, NEXT, 0);
    guest.describe(START, 1, room, NEXT, 2);
    guest.describe(START, 2, room, NEXT, 1);
    guest.describe(START, 3, room, NEXT, DESCRIPTORS);
    // A table within a table, one that refers to itself, an empty one, one outside of the memory.
    guest.describe(START, 4, (DATA, 32), INDIRECT, 0);
    guest.describe(DATA, 0, (DATA, 32), INDIRECT, 0);
    guest.describe(START, 5, (DATA + 0x100, 32), INDIRECT, 0);
    guest.describe(DATA + 0x100, 0, room, NEXT, 1);
    guest.describe(DATA + 0x100, 1, room, NEXT, 0);
    guest.describe(START, 6, (DATA, 15), INDIRECT, 0);
    guest.describe(START, 7, (START + LEN, 16), INDIRECT, 0);
    guest.describe(START, 8, (u64::MAX, 32), INDIRECT, 0);
    for head in (0..=8).chain([DESCRIPTORS, u16::MAX]) {
        guest.offer(head, guest.queue.taken);
        assert!(guest.queue.next(&guest.memory).is_none(), "{head}");
    }
}

#[test]
fn a_status_without_room_is_not_written() {
    let (mut guest, device) = (Guest::new(), Recorder::new(8192));
    guest.put(ROOM, &[0xee; 32]);
    guest.describe(START, 0, (ROOM + 16, 0), WRITE, 0);
    guest.offer(0, 0);
    let chain = guest.queue.next(&guest.memory).unwrap();
    assert_eq!(serve(&device.1, &guest.memory, &chain, &mut Vec::new()).0, 0);
    assert_eq!(guest.bytes::<32>(ROOM), [0xee; 32]);
}

#[test]
fn counts_of_requests_restart_after_the_last_one() {
    let (mut guest, device) = (Guest::new(), Recorder::new(8192));
    (guest.queue.taken, guest.queue.given) = (u16::MAX - 1, u16::MAX - 1);
    for _ in 0..4 {
        assert_eq!(guest.ask(&device.1, (kind::FLUSH, 0), (DATA, 0), 0), OK);
        assert_eq!(u16::from_le_bytes(guest.bytes(USED + 2)), guest.queue.taken);
    }
    assert_eq!((guest.queue.taken, guest.queue.given), (2, 2));
}

#[test]
fn a_queue_of_an_invalid_length_is_empty() {
    let mut guest = Guest::new();
    guest.offer(0, 0);
    for len in [0, 3, 1 << 16, u32::MAX] {
        guest.queue.len = len;
        assert!(guest.queue.next(&guest.memory).is_none(), "{len}");
    }
    let len = u32::from(DESCRIPTORS);
    for at in [0, START + LEN - 1, u64::MAX - 1, u64::MAX] {
        guest.queue = Queue { len, descriptors: START, available: at, used: at, ..Queue::default() };
        assert!(guest.queue.next(&guest.memory).is_none(), "{at:#x}");
    }
}

/// The usual addresses of a guest.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![8 => START..START + LEN, 1 => START + LEN - 40..START + LEN + 40, 1 => any::<u64>()]
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(16_u32), 2 => 0..64_u32, 2 => Just(512_u32), 1 => 0..0x5000_u32, 1 => any::<u32>()]
}

prop_compose! {
    fn descriptor()(address in address(), len in length(), flags in prop_oneof![7 => 0..8_u16, 1 => any::<u16>()],
        next in prop_oneof![9 => 0..DESCRIPTORS, 1 => any::<u16>()]) -> Vec<u8> {
        [&address.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()].concat()
    }
}

prop_compose! {
    /// The first bytes of a request, or a segment of a discard.
    fn request()(kind in 0..14_u32, zero in Just([0; 4]), sector in prop_oneof![0..20_u64, any::<u64>()]) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &zero, &sector.to_le_bytes()].concat()
    }
}

proptest! {
    #[test]
    fn a_guest_reaches_only_the_disk_and_its_memory_whatever_the_memory_contains(
        table in vec(descriptor(), usize::from(DESCRIPTORS)),
        indirect in vec(descriptor(), 8),
        requests in vec(request(), 32),
        heads in vec(prop_oneof![9 => 0..DESCRIPTORS, 1 => any::<u16>()], usize::from(DESCRIPTORS)),
        begin: u16, offered in 0..64_u16,
        is_read_only: bool,
    ) {
        let mut guest = Guest::new();
        guest.put(START, &table.concat());
        guest.put(ROOM, &requests.concat());
        guest.put(DATA + 0x100, &indirect.concat());
        let heads: Vec<u8> = heads.into_iter().flat_map(u16::to_le_bytes).collect();
        guest.put(AVAILABLE + 4, &heads);
        guest.put(AVAILABLE + 2, &begin.wrapping_add(offered).to_le_bytes());
        (guest.queue.taken, guest.queue.given) = (begin, begin);
        let around = |file: &File| {
            let mut bytes = vec![0; 2 * usize::try_from(AROUND).unwrap()];
            let (before, after) = bytes.split_at_mut(usize::try_from(AROUND).unwrap());
            file.read_exact_at(before, 0).unwrap();
            file.read_exact_at(after, AROUND + LEN).unwrap();
            bytes
        };
        let bytes = vec![0x55; 8192];
        let device = if is_read_only { MemDevice::read_only(bytes) } else { MemDevice::new(bytes) };
        // A guest may offer again memory that it has changed, so at most the first count is executed.
        let mut buffer = Vec::new();
        for _ in 0..offered {
            let Some(chain) = guest.queue.next(&guest.memory) else { break };
            prop_assert!(chain.ranges.len() <= 1 << 15);
            let room = chain.ranges.iter().map(|range| u64::from(range.len)).sum::<u64>();
            let (written, _) = serve(&device, &guest.memory, &chain, &mut buffer);
            prop_assert!(u64::from(written) <= room, "{written} of {room}");
            guest.queue.give_back(&guest.memory, &chain, written);
        }
        prop_assert_eq!(device.snapshot().len(), 8192);
        prop_assert!(!is_read_only || device.snapshot().iter().all(|byte| *byte == 0x55));
        prop_assert!(around(&guest.file).iter().all(|byte| *byte == 0), "memory outside of the guest was written");
    }
}
