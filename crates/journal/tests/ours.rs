//! Journals that obento wrote: e2fsck and the kernel replay them to the committed state.

mod common;
mod images;

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use images::{Loop, MIB, Sample, block_size, compare, dumped, journal_runs, kernel_oracles};
use obento_base::crc::crc32c;
use obento_block::{BlockDevice, Cache, MemDevice};
use obento_journal::{
    Checksums, Credits, Journal, JournalFeatures, JournalWriter, Log, NoHooks, Tid, Transactions, raw,
};
use obento_testkit::mutants::Random;
use obento_testkit::oracle::{LoopMount, Oracle, call, require};

/// Blocks of the file that take the role of metadata; their contents do not matter.
const BLOCKS: usize = 400;

/// A volume with one file, whose blocks are changed by transactions.
struct Volume {
    sample: Sample,
    device: Arc<MemDevice>,
    transactions: Arc<Transactions>,
    /// The blocks of the file, their contents, and the transaction in which they were freed.
    blocks: Vec<(u64, u64, Option<Tid>)>,
    version: u64,
    size: usize,
}

fn content(version: u64, size: usize) -> Vec<u8> {
    let mut bytes = version.to_be_bytes().repeat(size / 8);
    if version % 5 == 4 {
        bytes[..4].copy_from_slice(&raw::MAGIC.to_be_bytes());
    }
    bytes
}

impl Volume {
    fn new(mke2fs: &[&str], features: JournalFeatures) -> Self {
        let sample = Sample::new(mke2fs);
        let runs = journal_runs(&sample.image);
        let len = block_size(&sample.image);
        Self::with(sample, features, |device| Journal::open(device, len, runs).unwrap())
    }

    fn with(
        sample: Sample,
        features: JournalFeatures,
        journal: impl FnOnce(Arc<dyn BlockDevice>) -> Journal,
    ) -> Self {
        let size = usize::try_from(block_size(&sample.image)).unwrap();
        let file = sample.folder.path().join("file");
        fs::write(&file, content(1, size).repeat(BLOCKS)).unwrap();
        sample.debugfs(&[&format!("write {} file", file.display())]);
        let image = sample.image.to_str().unwrap();
        let list = call("debugfs", ["-R", "blocks /file", image]).unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        let numbers: Vec<u64> = list.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let device = Arc::new(MemDevice::new(fs::read(&sample.image).unwrap()));
        let shared = Arc::clone(&device) as Arc<dyn BlockDevice>;
        // The indirect blocks of the file are among them, and must not be changed.
        let holds_data = |number: &u64| {
            let mut block = vec![0xff; size];
            shared.read_at(number * size as u64, &mut block).unwrap();
            block == content(1, size)
        };
        let blocks: Vec<_> = numbers.into_iter().filter(holds_data).map(|number| (number, 1, None)).collect();
        assert_eq!(blocks.len(), BLOCKS);
        let len = u32::try_from(size).unwrap();
        let writer = JournalWriter::open(journal(Arc::clone(&shared)), features).unwrap();
        let cache = Arc::new(Cache::new(shared, len, 1 << 20));
        let options = common::world::options();
        let transactions = Transactions::new(cache, Log::Jbd2(writer), options, Arc::new(NoHooks));
        Self { sample, device, transactions, blocks, version: 1, size }
    }

    /// Changes, frees and overwrites blocks at random.
    fn be_busy(&mut self, random: &mut Random, steps: usize) {
        let some = |random: &mut Random, below: usize| usize::try_from(random.below(below as u64)).unwrap();
        for _ in 0..steps {
            let count = 1 + some(random, 12);
            let mut txn = self.transactions.begin(Credits(u32::try_from(count).unwrap())).unwrap();
            for _ in 0..count {
                let (number, version, free) = &mut self.blocks[some(random, BLOCKS)];
                let durable = self.transactions.durable();
                if free.is_some_and(|tid| tid.is_after(durable)) {
                    continue;
                }
                self.version += 1;
                if random.below(20) == 0 && free.is_none() {
                    txn.revoke(*number);
                    *free = Some(txn.tid());
                } else {
                    let taken =
                        if free.is_some() { txn.take_new(*number) } else { txn.take(*number) }.unwrap();
                    txn.edit(&taken).copy_from_slice(&content(self.version, self.size));
                    (*version, *free) = (self.version, None);
                }
            }
            txn.commit();
            if random.below(3) == 0 {
                self.transactions.sync().unwrap();
                self.overwrite_free();
            }
        }
        self.transactions.sync().unwrap();
        self.overwrite_free();
    }

    /// Writes data to durably freed blocks, without the journal.
    fn overwrite_free(&mut self) {
        for (number, version, _) in self.blocks.iter_mut().filter(|(_, _, free)| free.is_some()) {
            self.version += 1;
            *version = self.version;
            self.device.write_at(*number * self.size as u64, &content(self.version, self.size)).unwrap();
        }
    }

    /// Writes the image, which requires recovery.
    fn crash(&self) -> std::path::PathBuf {
        let mut bytes = self.device.snapshot();
        let super_block = &mut bytes[1024..2048];
        super_block[0x60] |= 0x4; // EXT4_FEATURE_INCOMPAT_RECOVER
        let sum = crc32c(!0, &super_block[..0x3fc]);
        if super_block[0x65] & 0x4 != 0 {
            super_block[0x3fc..].copy_from_slice(&sum.to_le_bytes());
        }
        let image = self.sample.folder.path().join("crashed");
        fs::write(&image, bytes).unwrap();
        image
    }

    /// Returns whether the kernel, which replays first, finds the committed contents of the file.
    fn judge_by_kernel(&self, image: &Path) {
        let copy = image.with_extension("kernel");
        fs::copy(image, &copy).unwrap();
        let mount = LoopMount::new(&copy, "").unwrap();
        let found = fs::read(mount.path().join("file")).unwrap();
        mount.unmount().unwrap();
        self.judge(found.chunks(self.size));
    }

    fn judge<'b>(&self, found: impl Iterator<Item = &'b [u8]>) {
        for (found, (number, version, _)) in found.zip(&self.blocks) {
            assert!(found == content(*version, self.size), "block {number} is not version {version}");
        }
    }
}

#[test]
fn the_kernel_and_e2fsck_replay_our_commits() {
    if !kernel_oracles() {
        return;
    }
    let features = |checksums, wide| JournalFeatures { checksums, wide };
    let cases: &[(&[&str], JournalFeatures)] = &[
        (&["-t", "ext4", "-b", "4096"], features(Checksums::V3, true)),
        (&["-t", "ext4", "-b", "1024", "-J", "size=1"], features(Checksums::V3, true)),
        (&["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "^64bit"], features(Checksums::V3, false)),
        (&["-t", "ext4", "-b", "1024", "-J", "size=1"], features(Checksums::V2, true)),
        (
            &["-t", "ext4", "-b", "2048", "-J", "size=2", "-O", "^metadata_csum"],
            features(Checksums::None, true),
        ),
        (&["-t", "ext3", "-b", "1024", "-J", "size=1"], features(Checksums::None, false)),
    ];
    for (seed, (mke2fs, features)) in (1..).zip(cases) {
        println!("{mke2fs:?}, {features:?}, seed {seed}");
        let mut volume = Volume::new(mke2fs, *features);
        let mut random = Random::new(seed);
        let (mut revoked, mut wrapped) = (0, 0);
        for steps in [30, 400] {
            volume.be_busy(&mut random, steps);
            let image = volume.crash();
            let journal = images::open(&image);
            let replayed = compare(&image, &journal, &[]);
            volume.judge_by_kernel(&image);
            // The journal of obento is written to the device, then read back.
            let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(fs::read(&image).unwrap()));
            let size = block_size(&image);
            let mut journal = Journal::open(Arc::clone(&device), size, journal_runs(&image)).unwrap();
            let count = dumped(&image, "Block count:").parse().unwrap();
            assert_eq!(journal.recover(&device, count).unwrap(), replayed.summary);
            let cache = Cache::new(device, size, 0);
            let blocks: Vec<_> =
                volume.blocks.iter().map(|(number, ..)| cache.get(*number).unwrap()).collect();
            volume.judge(blocks.iter().map(|block| &block[..]));
            revoked += replayed.summary.revoked;
            wrapped += usize::from(replayed.summary.head < images::open(&image).super_block().start);
        }
        assert!(
            volume.transactions.stats().checkpoints > 0 && revoked > 0 && wrapped > 0,
            "{revoked} {wrapped}"
        );
    }
}

#[test]
fn a_journal_that_we_wrote_on_its_own_device_is_replayed_by_e2fsck() {
    if !kernel_oracles() || !require(&[Oracle::Program("losetup")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let side = folder.path().join("journal");
    File::create(&side).unwrap().set_len(4 * MIB).unwrap();
    call("mke2fs", ["-q", "-F", "-O", "journal_dev", "-b", "1024", side.to_str().unwrap()]).unwrap();
    let device = Loop::new(&side);
    let sample = Sample::new(&["-t", "ext4", "-b", "1024", "-J", &format!("device={}", device.0)]);
    drop(device);
    let mut uuid = [0; 16];
    File::open(&sample.image).unwrap().read_exact_at(&mut uuid, 1024 + 0xd0).unwrap();
    let log = Arc::new(MemDevice::new(fs::read(&side).unwrap()));
    let features = JournalFeatures { checksums: Checksums::V3, wide: true };
    let journal = || Journal::open_external(Arc::clone(&log) as _, 1024, uuid).unwrap();
    let mut volume = Volume::with(sample, features, |_| journal());
    volume.be_busy(&mut Random::new(7), 200);
    let image = volume.crash();
    fs::write(&side, log.snapshot()).unwrap();
    let replayed = compare(&image, &journal(), &["-j", side.to_str().unwrap()]);
    assert!(replayed.summary.transactions > 0 && replayed.summary.revoked > 0, "{:?}", replayed.summary);
    let after = fs::read(image.with_extension("e2fsck")).unwrap();
    let at = |number: u64| usize::try_from(number).unwrap() * 1024;
    volume.judge(volume.blocks.iter().map(|(number, ..)| &after[at(*number)..][..1024]));
}
