//! Copies of the FAT that differ: which of them contains the chain of a file.
//!
//! A chain is decided when its clusters are assigned. The copy in which the chain is complete wins. Such a chain ends
//! in the cluster in which the file ends, and none of its clusters belongs to another file. A directory has no stored
//! length; see [`best_of_a_directory`]. The rest of the check reads the FAT through the choices
//! ([`choices`](super::choices)). If there are two different complete chains, or if no copy contains a complete chain,
//! the choice is doubtful, and only `-y` writes it. Entries outside of all chains of files follow the copy that is read.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{FromBytes as _, to_u64, to_usize};
use obento_base::{Error, Result};
use obento_clusters::{Bits, Entry, clusters_of, skip_zeros};

use super::choices::{MOST, UndecidedEntries};
use super::edit::Edit;
use super::issue::Issue;
use super::pass::Pass;
use super::view::View;
use crate::inode::Kind;
use crate::raw::RawEntry;
use crate::super_block::Width;
use crate::table::{self, Reader, place};
use crate::unit::Cluster;

/// Size of the parts of two FATs that are compared at a time.
const STEP: usize = 64 << 10;

/// The quality of a chain; the last variant is the best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// It ends too early, or contains an impossible cluster.
    Part,
    /// It continues after the end of its file.
    Long,
    /// It ends where its file ends.
    Whole,
}

/// A chain according to one of the copies.
struct Trial {
    fit: Fit,
    count: u64,
    /// Number of links that were followed.
    links: u64,
    /// A hash of all its entries.
    path: u64,
    /// Its clusters, if it belongs to a directory.
    clusters: Vec<u32>,
    /// Its entries in which the copies differ, and their values in this chain.
    differing: Vec<(u32, u32)>,
}

/// The chain of a file or directory.
#[derive(Clone, Copy)]
pub struct RequiredChain {
    /// Its first cluster.
    pub first: Cluster,
    /// Number of clusters that a file needs; unknown for a directory.
    pub need: Option<u64>,
    /// Maximum number of clusters.
    pub most: u64,
}

/// The source of the entries of a trial.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// One copy, by its index among the readers.
    Copy(usize),
    /// The first copy whose entry may be right.
    Any,
}

/// Chooses between the copies for one chain. `owned` are the clusters of other files. Fails if the device fails.
pub fn settle(view: &View, owned: &Bits, wanted: RequiredChain, pass: &mut Pass<'_>) -> Result<()> {
    let copies = view.choices.borrow().copies.clone();
    if copies.is_empty() || pass.is_full() || view.choices.borrow().links == 0 {
        return Ok(());
    }
    let base = view.sb.read_fat();
    let others: Vec<u8> = copies.iter().map(|&(copy, _)| copy).collect();
    let mut readers: Vec<_> = [base].into_iter().chain(others).map(|copy| view.copy(copy)).collect();
    let sources = (0..readers.len()).map(Source::Copy).chain([Source::Any]);
    let trials = sources.map(|source| follow(view, owned, wanted, &mut readers, source));
    let trials = trials.collect::<Result<Vec<_>>>()?;
    let (best, in_doubt) = match wanted.need {
        Some(_) => best_of_a_file(&trials),
        None => best_of_a_directory(view, &trials)?,
    };
    let Some(chosen) = trials.get(best) else { return Ok(()) };
    let mut choices = view.choices.borrow_mut();
    let links = trials.iter().fold(0, |links: u64, trial| links.saturating_add(trial.links));
    choices.links = choices.links.saturating_sub(links);
    let base = readers.first_mut();
    if let Some(base) = base {
        for &(cluster, value) in &chosen.differing {
            if base.raw(Cluster(cluster))? != value {
                choices.values.insert(cluster, value);
            }
        }
    }
    if in_doubt {
        let all = trials.iter().flat_map(|trial| &trial.differing);
        choices.doubtful.extend(all.map(|&(cluster, _)| cluster));
    }
    if choices.is_full() {
        pass.wait();
    }
    Ok(())
}

/// Returns the best chain of a file, and whether the choice is doubtful.
fn best_of_a_file(trials: &[Trial]) -> (usize, bool) {
    let rank = |at: usize| trials.get(at).map(|trial| (trial.fit, trial.count));
    let best = (1..trials.len()).fold(0, |best, at| if rank(at) > rank(best) { at } else { best });
    let Some(chosen) = trials.get(best) else { return (best, true) };
    let is_rival = |other: &Trial| other.path != chosen.path && other.fit == Fit::Whole;
    (best, chosen.fit != Fit::Whole || trials.iter().any(is_rival))
}

/// Returns the best chain of a directory, whose length is unknown, and whether the choice is doubtful. If two complete
/// chains diverge, the chain that continues in a part of a directory wins. A power cut between the writes of two FATs
/// leaves such chains.
fn best_of_a_directory(view: &View, trials: &[Trial]) -> Result<(usize, bool)> {
    let mut whole: Vec<usize> = (0..trials.len()).collect();
    whole.retain(|&at| trials.get(at).is_some_and(|trial| trial.fit == Fit::Whole));
    whole.sort_by_key(|&at| trials.get(at).map_or(0, |trial| trial.count));
    let Some(&(mut best)) = whole.first() else { return Ok((best_of_a_file(trials).0, true)) };
    let mut in_doubt = false;
    for at in whole {
        let (Some(now), Some(other)) = (trials.get(best), trials.get(at)) else { continue };
        if other.path == now.path {
            best = best.min(at);
            continue;
        }
        let same = now.clusters.iter().zip(&other.clusters).take_while(|(one, two)| one == two).count();
        let may_be = |trial: &Trial| -> Result<Option<bool>> {
            match trial.clusters.get(same) {
                Some(&cluster) => {
                    let cluster = Cluster(cluster);
                    Ok(Some(may_be_directory(view, cluster)? && !is_follower(view, cluster)?))
                }
                None => Ok(None),
            }
        };
        match (may_be(now)?, may_be(other)?) {
            (_, Some(false)) => {}
            (None | Some(false), _) => best = at,
            (Some(true), _) => (in_doubt, best) = (true, best.min(at)),
        }
    }
    Ok((best, in_doubt))
}

/// Returns whether a cluster follows another one in every copy, and thus belongs to that chain.
fn is_follower(view: &View, cluster: Cluster) -> Result<bool> {
    let mut choices = view.choices.borrow_mut();
    if choices.followers.is_none() {
        choices.followers = Some(followers(view, &choices.copies)?);
    }
    Ok(choices.followers.as_ref().is_some_and(|followers| followers.has(cluster)))
}

fn followers(view: &View, copies: &[(u8, Cluster)]) -> Result<Bits> {
    let mut followers = Bits::default();
    let (mut base, mut others) = (view.table(), Vec::new());
    others.extend(copies.iter().map(|&(copy, _)| view.copy(copy)));
    let (used, failed) = table::used(&**view.device(), &view.sb, view.sb.read_fat())?;
    if let Some(error) = failed {
        return Err(error);
    }
    for cluster in used.runs(2..view.sb.clusters.saturating_add(2)).flat_map(clusters_of) {
        let value = base.raw(cluster)?;
        let Entry::Next(next) = view.decode(value) else { continue };
        let mut agree = true;
        for other in &mut others {
            agree &= other.raw(cluster)? == value;
        }
        if agree {
            followers.set(next)?;
        }
    }
    Ok(followers)
}

/// Returns whether a cluster contains only plausible directory entries, and no directory begins there.
fn may_be_directory(view: &View, cluster: Cluster) -> Result<bool> {
    let Some(start) = view.sb.offset_of(cluster) else { return Ok(false) };
    for offset in (start..start.saturating_add(view.sb.cluster_size.into())).step_by(32) {
        let raw = RawEntry::read_from_bytes(&view.bytes::<32>(offset)?).map_err(|_| Error::Invalid)?;
        // Another directory begins like this.
        if !may_be_entry(&raw) || offset == start && raw.kind() == Kind::Dots {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether an entry is plausible.
pub fn may_be_entry(raw: &RawEntry) -> bool {
    match raw.kind() {
        Kind::End | Kind::Free => true,
        Kind::LongName => raw.DIR_FstClusLO.get() == 0,
        _ => raw.DIR_Attr & 0xc0 == 0 && raw.DIR_Name.iter().all(|&byte| byte >= 0x20 || byte == 5),
    }
}

/// Finds out whether a chain is a circle: a cluster is compared with one from a while ago.
#[derive(Default)]
struct Circle {
    before: Option<(Cluster, u64)>,
    is_found: bool,
}

impl Circle {
    /// Returns the length of the circle when the walk first finds out that it returned. `at` is the index of `cluster`.
    fn returns_to(&mut self, cluster: Cluster, at: u64) -> Option<u64> {
        let len =
            self.before.filter(|(before, _)| *before == cluster).map(|(_, before)| at.saturating_sub(before));
        if at.is_power_of_two() {
            self.before = Some((cluster, at));
        }
        let len = len.filter(|_| !self.is_found);
        self.is_found |= len.is_some();
        len
    }
}

/// Follows a chain by the entries of `source`.
fn follow(
    view: &View,
    owned: &Bits,
    wanted: RequiredChain,
    readers: &mut [Reader<'_>],
    source: Source,
) -> Result<Trial> {
    let (clusters, differing) = (Vec::new(), Vec::new());
    let mut trial = Trial { fit: Fit::Part, count: 0, links: 0, path: 0, clusters, differing };
    let (mut cluster, mut circle) = (wanted.first, Circle::default());
    while view.sb.has(cluster) && !owned.has(cluster) && trial.count < wanted.most {
        if let Some(len) = circle.returns_to(cluster, trial.count) {
            // Further rounds lead to the same clusters.
            let left = wanted.most.saturating_sub(trial.count).saturating_sub(1);
            trial.count = trial.count.saturating_add(left.saturating_sub(left.checked_rem(len).unwrap_or(0)));
        }
        trial.count = trial.count.saturating_add(1);
        trial.links = trial.links.saturating_add(1);
        if wanted.need.is_none() {
            trial.clusters.push(cluster.0);
        }
        let is_last = wanted.need.map(|need| trial.count >= need);
        let values = readers.iter_mut().map(|reader| reader.raw(cluster)).collect::<Result<Vec<_>>>()?;
        let may_be = |&&value: &&u32| match view.decode(value) {
            Entry::Next(next) => is_last != Some(true) && !owned.has(next),
            Entry::Last => is_last != Some(false),
            _ => false,
        };
        let first = values.first().copied().unwrap_or(0);
        let value = match source {
            Source::Copy(at) => values.get(at).copied(),
            Source::Any => values.iter().find(may_be).copied(),
        };
        let value = value.unwrap_or(first);
        if values.iter().any(|&other| other != first) && trial.differing.len() < MOST {
            trial.differing.push((cluster.0, value));
        }
        let entry = view.decode(value);
        let said = match entry {
            Entry::Last => 1,
            Entry::Next(next) => next.0,
            _ => value,
        };
        trial.path = (trial.path ^ u64::from(said)).wrapping_mul(0x0000_0100_0000_01b3);
        match entry {
            Entry::Next(_) if is_last == Some(true) => {
                trial.fit = Fit::Long;
                break;
            }
            Entry::Next(next) => cluster = next,
            Entry::Last if is_last != Some(false) => {
                trial.fit = Fit::Whole;
                break;
            }
            Entry::Free | Entry::Bad => {
                trial.count = trial.count.saturating_sub(1);
                break;
            }
            _ => break,
        }
    }
    Ok(trial)
}

/// Reports the copies that differ from the choices.
pub fn check(view: &View, pass: &mut Pass<'_>) -> Result<()> {
    let choices = view.choices.borrow();
    let base = view.sb.read_fat();
    if let Some((cluster, _)) = choices.values(UndecidedEntries::Keep).next() {
        pass.must(
            Issue::FatCopy { copy: base, cluster: cluster.0 },
            vec![Edit::Settle(UndecidedEntries::Keep)],
        );
    }
    for &(copy, start) in &choices.copies {
        let mut differing = None;
        each_difference(view, base, copy, start, |cluster, value| {
            let chosen = choices.value(cluster);
            let is_wrong = chosen.is_none_or(|chosen| chosen != value);
            differing =
                Some(cluster).filter(|_| is_wrong && choices.may_write(cluster, UndecidedEntries::Keep));
            differing.is_none()
        })?;
        if let Some(cluster) = differing {
            pass.must(
                Issue::FatCopy { copy, cluster: cluster.0 },
                vec![Edit::Settle(UndecidedEntries::Keep)],
            );
        }
    }
    if let Some(&cluster) = choices.doubtful.first() {
        pass.must(Issue::FatChoice { cluster }, vec![Edit::Settle(UndecidedEntries::Decide)]);
    }
    Ok(())
}

/// Returns the first cluster from `start` on whose entry differs between two copies.
pub fn first_difference(view: &View, one: u8, other: u8, start: Cluster) -> Result<Option<Cluster>> {
    let mut found = None;
    each_difference(view, one, other, start, |cluster, _| {
        found = Some(cluster);
        false
    })?;
    Ok(found)
}

/// Passes each entry from `start` on that differs between two copies to `act`, with its value in `other`, until `act`
/// returns false.
pub fn each_difference(
    view: &View,
    one: u8,
    other: u8,
    start: Cluster,
    mut act: impl FnMut(Cluster, u32) -> bool,
) -> Result<()> {
    let sb = &view.sb;
    let end = sb.clusters.saturating_add(2);
    let len = sb.width.table_len(sb.clusters).min(sb.fat_len);
    let (mut left, mut right) = (vec![0; STEP], vec![0; STEP]);
    let (mut of_one, mut of_other) = (view.copy(one), view.copy(other));
    let (mut at, mut next) = (0, start.0);
    while at < len {
        at = at_difference(view, one, other, at..len);
        let count = to_usize(len.saturating_sub(at).min(to_u64(STEP)));
        let (Some(left), Some(right)) = (left.get_mut(..count), right.get_mut(..count)) else { break };
        view.device().read_at(sb.fat_offset(one).saturating_add(at), left)?;
        view.device().read_at(sb.fat_offset(other).saturating_add(at), right)?;
        let differing = left.iter().zip(&*right).enumerate().filter(|(_, (left, right))| left != right);
        for (byte, _) in differing {
            // A byte contains one entry, or parts of two entries of 12 bits.
            for cluster in entries_of(sb.width, at.saturating_add(to_u64(byte))) {
                if cluster < next || cluster >= end {
                    continue;
                }
                next = cluster.saturating_add(1);
                let value = of_other.raw(Cluster(cluster))?;
                if of_one.raw(Cluster(cluster))? != value && !act(Cluster(cluster), value) {
                    return Ok(());
                }
            }
        }
        at = at.saturating_add(to_u64(count));
    }
    Ok(())
}

/// Returns the first byte in `range` of two FATs in which they may differ: not both are in holes of the image.
fn at_difference(view: &View, one: u8, other: u8, range: Range<u64>) -> u64 {
    let same = |copy: u8| {
        let start = view.sb.fat_offset(copy);
        let places = start.saturating_add(range.start)..start.saturating_add(range.end);
        skip_zeros(&**view.device(), places, to_u64(STEP)).saturating_sub(start)
    };
    same(one).min(same(other))
}

/// Returns the entries that have a part of byte `at` of a FAT.
fn entries_of(width: Width, at: u64) -> impl Iterator<Item = u32> {
    let first = at.saturating_mul(8).checked_div(width.bits().into()).unwrap_or(0);
    let first = u32::try_from(first).unwrap_or(u32::MAX);
    let second = first.saturating_add(1);
    let has_second = width == Width::Fat12 && place(width, Cluster(second)).0 <= at;
    core::iter::once(first).chain(has_second.then_some(second))
}
