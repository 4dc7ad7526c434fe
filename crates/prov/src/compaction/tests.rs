use obento_base::Generation;
use obento_driver::history::{OpenMode, Transferred};

use super::*;
use crate::block::BLOCK;
use crate::graph::{Edge, Graph};

const EDGES: Header = Header { volume: [0; 16], number: 0, first: 0, boot: [0; 16] };

/// Returns the compaction of whole segments by a graph of all their records.
fn by_graph(old: &[u8], segment: &[u8], max: usize) -> Vec<u8> {
    let mut graph = Graph::new();
    Entries::new(old).chain(Entries::new(segment)).flatten().for_each(|entry| graph.add(&entry));
    let mut edges: Vec<(bool, Edge)> = graph.used().iter().map(|edge| (false, *edge)).collect();
    edges.extend(graph.generated().into_iter().map(|edge| (true, *edge)));
    edges.sort_unstable_by_key(|(generates, edge)| (edge.last, *generates, edge.version, edge.actor));
    loop {
        let bytes = encode(&graph, &edges);
        if bytes.len() <= max || edges.is_empty() {
            return bytes;
        }
        edges.drain(..edges.len().div_ceil(2));
    }
}

fn encode(graph: &Graph, edges: &[(bool, Edge)]) -> Vec<u8> {
    let (mut out, mut ids) = (SegmentWriter::new(&EDGES), HashMap::new());
    for (is_generation, edge) in edges {
        let next = ActorId(to_position(ids.len()));
        let actor = *ids.entry(edge.actor).or_insert_with(|| {
            out.push(0, &Record::Actor { id: next, actor: edge.actor });
            next
        });
        let Version { file, number: version } = edge.version;
        if !is_generation {
            out.push(0, &Record::Used { actor, file, version, sequence: edge.sequence });
            continue;
        }
        let (parent, name) = graph.location(file).unwrap_or((Ino(0), b""));
        out.push(0, &Record::Generated { actor, file, version, sequence: edge.last, parent, name });
        if let Some(name) = graph.origin(edge.version) {
            out.push(0, &Record::Source { actor, file, name });
        }
    }
    out.finish()
}

fn compacted(old: &[u8], segment: &[u8], max: usize) -> Vec<u8> {
    let mut compaction = Compaction::new(max);
    for bytes in [old, segment] {
        let mut next = 0;
        for blocks in bytes.get(BLOCK..).unwrap_or_default().chunks(BLOCK * 3) {
            next = compaction.add_blocks(blocks, next);
        }
    }
    compaction.finish(&EDGES)
}

struct RandomLog {
    seed: u64,
    next: u64,
}

impl RandomLog {
    fn below(&mut self, end: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % end
    }

    fn file(&mut self) -> FileId {
        FileId { ino: Ino(self.below(400) + 10), generation: Generation(self.below(2) as u32) }
    }

    fn push(&mut self, to: &mut SegmentWriter) {
        let (number, wide) = (self.below(300) as u32, self.below(1000));
        let (actor, parent, file, other) = (ActorId(number), Ino(2), self.file(), self.file());
        let (name, new_name) = (wide.to_le_bytes(), self.below(9).to_le_bytes());
        let (name, new_name) = (&name[..(wide % 9) as usize], &new_name[..]);
        let (read, write) = (wide & 1 == 0, wide & 2 == 0);
        let kind = if wide % 5 == 0 { FileKind::Directory } else { FileKind::Regular };
        let (written, links, exchange) = (Transferred::default(), number & 1, read);
        let (version, sequence) = (self.below(6), self.below(self.next));
        let process = Actor { pid: number / 2, uid: (wide % 3) as u32, ..Actor::default() };
        let record = match self.below(40) {
            0 => Record::Actor { id: actor, actor: process },
            1..=14 => Record::Open { actor, file, mode: OpenMode { read, write } },
            15..=19 => Record::Close { actor, file, read: written, written },
            20..=22 => Record::Create { actor, parent, name, file, kind, mode: 0, target: b"" },
            23 => Record::Link { actor, parent, name, file },
            24 => Record::Remove { actor, parent, name, file, links },
            25 => {
                let replaced = write.then_some(other);
                let (from, to, moved) = (parent, Ino(wide), file);
                Record::Rename { actor, from, name, to, new_name, moved, replaced, links, exchange }
            }
            26..=33 => Record::Write { actor, file, written },
            34 => Record::Truncate { actor, file, size: wide },
            35 | 36 => Record::Used { actor, file, version, sequence },
            37 | 38 => Record::Generated { actor, file, version, sequence, parent, name },
            _ => Record::Source { actor, file, name: new_name },
        };
        to.push(0, &record);
        self.next += 1;
    }

    /// Returns the next segment, of at most `max` bytes.
    fn segment(&mut self, max: usize) -> Vec<u8> {
        let mut segment = SegmentWriter::new(&Header { number: 1, first: self.next, ..EDGES });
        while segment.len() + BLOCK < max {
            self.push(&mut segment);
        }
        segment.finish()
    }
}

#[test]
fn a_compaction_has_the_edges_of_a_graph_of_all_records() {
    for seed in 0..6 {
        let mut log = RandomLog { seed, next: 1 };
        let max = [4 * BLOCK, 16 * BLOCK, 64 * BLOCK][seed as usize % 3];
        let mut old = Vec::new();
        for round in 0..6 {
            let segment = log.segment(max);
            assert!(segment.len() <= max);
            let expected = by_graph(&old, &segment, max);
            assert!(expected.len() > BLOCK);
            old = compacted(&old, &segment, max);
            assert!(old == expected, "seed {seed}, round {round}");
        }
    }
}

#[test]
fn a_long_segment_with_few_edges_loses_none() {
    let max = 16 * BLOCK;
    let mut log = RandomLog { seed: 9, next: 1 };
    let mut segment = SegmentWriter::new(&Header { number: 1, first: 1, ..EDGES });
    for pid in 0..20 {
        segment.push(0, &Record::Actor { id: ActorId(pid), actor: Actor { pid, ..Actor::default() } });
    }
    let generation = Generation(0);
    while segment.len() < 12 * max {
        let file = FileId { ino: Ino(log.below(40)), generation };
        let (actor, written) = (ActorId(log.below(20) as u32), Transferred::default());
        // Each file has one writer.
        let writer = ActorId((file.ino.0 % 20) as u32);
        segment.push(0, &Record::Open { actor, file, mode: OpenMode { read: true, write: false } });
        segment.push(0, &Record::Link { actor, parent: Ino(2), name: b"a name", file });
        segment.push(0, &Record::Write { actor: writer, file, written });
    }
    let segment = segment.finish();
    let result = compacted(&[], &segment, max);
    assert!(result == by_graph(&[], &segment, max));
    assert!(Entries::new(&result).flatten().count() > 500);
}

#[test]
fn a_compaction_of_many_uses_holds_twice_the_edges_of_its_result() {
    let max = 16 * BLOCK;
    let mut compaction = Compaction::new(max);
    let actor = ActorId(0);
    for ino in 0..100_000 {
        let (sequence, file) = (ino, FileId { ino: Ino(ino), generation: Generation(0) });
        let record = Record::Used { actor, file, version: 1, sequence };
        let mut blocks = SegmentWriter::new(&EDGES);
        blocks.push(0, &record);
        compaction.add_blocks(&blocks.finish()[BLOCK..], 0);
        assert!(compaction.edges.len() < 2 * max / EDGE_MIN);
    }
    assert!(compaction.edges.capacity() <= 2 * max / EDGE_MIN);
    assert_eq!(compaction.actors.list.len(), 1);
    let result = compaction.finish(&EDGES);
    assert!(result.len() <= max && result.len() > max / 4, "{}", result.len());
    let files: Vec<_> = Entries::new(&result).flatten().filter_map(|entry| entry.record.file()).collect();
    let newest = (0..100_000).rev().take(files.len()).map(Ino);
    assert!(files.iter().rev().map(|file| file.ino).eq(newest));
}

#[test]
fn a_compaction_of_many_names_holds_twice_the_bytes_of_its_result() {
    let max = 16 * BLOCK;
    let mut compaction = Compaction::new(max);
    let (actor, parent, name) = (ActorId(0), Ino(2), &[b'n'; 1000]);
    for ino in 0..5000 {
        let file = FileId { ino: Ino(ino), generation: Generation(0) };
        let mut blocks = SegmentWriter::new(&EDGES);
        blocks.push(0, &Record::Link { actor, parent, name, file });
        if ino % 3 == 0 {
            blocks.push(0, &Record::Truncate { actor, file, size: 0 });
            blocks.push(0, &Record::Source { actor, file, name });
        }
        compaction.add_blocks(&blocks.finish()[BLOCK..], 0);
        let names: usize = compaction.locations.values().map(|location| location.name.len()).sum();
        let origins: usize = compaction.origins.values().map(Vec::len).sum();
        assert!(names + origins <= 2 * max);
        assert!(compaction.newest.len() <= compaction.edges.len());
    }
    let result = compaction.finish(&EDGES);
    assert!(result.len() <= max && result.len() > max / 4, "{}", result.len());
}

#[test]
fn many_versions_of_a_file_with_a_long_name_fit_into_the_result() {
    let max = 16 * BLOCK;
    let mut segment = SegmentWriter::new(&Header { number: 1, first: 1, ..EDGES });
    let file = FileId { ino: Ino(5), generation: Generation(0) };
    segment.push(0, &Record::Link { actor: ActorId(0), parent: Ino(2), name: &[b'n'; 1000], file });
    for id in [ActorId(0), ActorId(1)] {
        segment.push(0, &Record::Actor { id, actor: Actor { pid: id.0, ..Actor::default() } });
    }
    while segment.len() + BLOCK < max {
        for actor in [ActorId(0), ActorId(1)] {
            segment.push(0, &Record::Truncate { actor, file, size: 0 });
        }
    }
    let segment = segment.finish();
    let result = compacted(&[], &segment, max);
    assert!(result.len() <= max && result == by_graph(&[], &segment, max));
}
