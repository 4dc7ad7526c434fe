//! Limits of owners, and their usage with everything that is not committed.
//!
//! The limits are read when the volume is opened: nothing changes them while it is open. Only owners with limits have an
//! [`Account`] (`DQ_FAKE_B` in Linux).
//! Invariant: the usage of an account is that of the stored inodes, whether they are committed or not. Its reserved
//! usage is that of blocks that were returned to callers (*held*, by inode), and of running operations ([`Admission`]).
//! Invariant: a change that was admitted is counted from its admission on, so that two changes never share the same room.
//! Locking: a leaf lock.
//! Source: Linux `fs/quota/dquot.c` `dquot_add_inodes`, `dquot_add_space`, `dquot_decr_inodes`, `dquot_decr_space`,
//! `dquot_free_reserved_space`, `dquot_claim_space_nodirty`, `__dquot_transfer`.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashMap;
use obento_base::{Error, Ino, Result};
use obento_env::sync::Mutex;

use super::{Charge, LIMIT_UNIT, QuotaKind, RawEntry, UsageChanges};

/// The owners that an inode is charged to, in the order of [`QuotaKind::ALL`]. `None` for an owner that the change does
/// not concern.
pub(crate) type OwnerIds = [Option<u32>; 3];

/// Whether limits bind the caller. Linux: `ignore_hardlimit`, for a process with `CAP_SYS_RESOURCE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Enforcement {
    Bound,
    Exempt,
}

/// Inodes or bytes of an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Amount {
    used: u64,
    reserved: u64,
    /// 0 for none.
    hard: u64,
    /// 0 for none.
    soft: u64,
    /// When the grace period ends, in seconds; 0 while the soft limit is not exceeded.
    deadline: u64,
    /// Length of the grace period in seconds.
    grace: u64,
}

impl Amount {
    fn total(&self) -> u64 {
        self.used.saturating_add(self.reserved)
    }

    /// Returns whether `more` may be added.
    fn admits(&self, more: u64, now: u64) -> bool {
        let total = self.total().saturating_add(more);
        let within_hard = self.hard == 0 || total <= self.hard;
        let within_soft = self.soft == 0 || total <= self.soft || self.deadline == 0 || now < self.deadline;
        more == 0 || within_hard && within_soft
    }

    /// Starts or ends the grace period, as the usage requires.
    fn watch(&mut self, now: u64) {
        if self.total() > self.soft && self.deadline == 0 {
            self.deadline = now.saturating_add(self.grace).max(1);
        }
        self.end_grace();
    }

    /// Ends the grace period, if the soft limit is not exceeded.
    fn end_grace(&mut self) {
        if self.soft == 0 || self.total() <= self.soft {
            self.deadline = 0;
        }
    }

    /// Returns taken room.
    fn give_back(&mut self, amount: u64) {
        self.reserved = self.reserved.saturating_sub(amount);
        self.end_grace();
    }
}

/// The limits and the usage of an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Account {
    inodes: Amount,
    bytes: Amount,
}

impl Account {
    fn new(raw: &RawEntry, grace: (u32, u32)) -> Self {
        let to_bytes = |limit: u64| limit.saturating_mul(LIMIT_UNIT);
        Self {
            inodes: Amount {
                used: raw.dqb_curinodes.get(),
                reserved: 0,
                hard: raw.dqb_ihardlimit.get(),
                soft: raw.dqb_isoftlimit.get(),
                deadline: raw.dqb_itime.get(),
                grace: grace.0.into(),
            },
            bytes: Amount {
                used: raw.dqb_curspace.get(),
                reserved: 0,
                hard: to_bytes(raw.dqb_bhardlimit.get()),
                soft: to_bytes(raw.dqb_bsoftlimit.get()),
                deadline: raw.dqb_btime.get(),
                grace: grace.1.into(),
            },
        }
    }

    fn watch(&mut self, now: u64) {
        self.inodes.watch(now);
        self.bytes.watch(now);
    }
}

/// The limits of an owner, and what is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct OwnerRoom {
    /// The lower limit of space that is not 0, and the usage, in bytes.
    pub(crate) bytes: Option<(u64, u64)>,
    /// The lower limit of inodes that is not 0, and the usage.
    pub(crate) inodes: Option<(u64, u64)>,
}

/// The accounts of a volume.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    /// Whether any owner has limits.
    is_needed: bool,
    state: Mutex<AccountState>,
}

#[derive(Debug, Default)]
struct AccountState {
    accounts: BTreeMap<(QuotaKind, u32), Account>,
    /// The bytes of blocks that were returned to callers, of files whose owners have limits.
    held: HashMap<Ino, (OwnerIds, u64)>,
}

/// Room that a running operation has taken, until it is dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    accounts: Arc<Accounts>,
    owners: OwnerIds,
    inodes: u64,
    bytes: u64,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.accounts.state.lock().each(self.owners, |account| {
            account.inodes.give_back(self.inodes);
            account.bytes.give_back(self.bytes);
        });
    }
}

impl AccountState {
    fn each(&mut self, owners: OwnerIds, mut act: impl FnMut(&mut Account)) {
        for (kind, id) in QuotaKind::ALL.into_iter().zip(owners) {
            if let Some(account) = id.and_then(|id| self.accounts.get_mut(&(kind, id))) {
                act(account);
            }
        }
    }

    fn of(&self, owners: OwnerIds) -> impl Iterator<Item = &Account> + '_ {
        let ids = QuotaKind::ALL.into_iter().zip(owners);
        ids.filter_map(|(kind, id)| self.accounts.get(&(kind, id?)))
    }

    /// Sets the bytes that callers have of the blocks of `ino`.
    fn hold(&mut self, ino: Ino, owners: OwnerIds, bytes: u64) {
        if let Some((owners, before)) = self.held.remove(&ino) {
            self.each(owners, |account| {
                account.bytes.reserved = account.bytes.reserved.saturating_sub(before);
            });
        }
        if bytes > 0 {
            self.held.insert(ino, (owners, bytes));
            self.each(owners, |account| {
                account.bytes.reserved = account.bytes.reserved.saturating_add(bytes)
            });
        }
    }
}

impl Accounts {
    /// Adds the accounts of the owners with limits in a quota file. `grace` are the grace periods of inodes and of space in
    /// seconds.
    pub(crate) fn add(
        &mut self,
        kind: QuotaKind,
        entries: impl Iterator<Item = RawEntry>,
        grace: (u32, u32),
    ) {
        let mut state = self.state.lock();
        for raw in entries.filter(RawEntry::has_limits) {
            state.accounts.insert((kind, raw.dqb_id.get()), Account::new(&raw, grace));
        }
        self.is_needed = !state.accounts.is_empty();
    }

    /// Returns whether any owner has limits.
    pub(crate) fn are_needed(&self) -> bool {
        self.is_needed
    }

    /// Returns whether one of `owners` has limits.
    pub(crate) fn bind(&self, owners: OwnerIds) -> bool {
        self.is_needed && self.state.lock().of(owners).next().is_some()
    }

    /// Takes room for `inodes` and `bytes` until the returned value is dropped. Returns `None` if no owner has limits.
    /// Fails with `QuotaExceeded`.
    pub(crate) fn admit(
        self: &Arc<Self>,
        owners: OwnerIds,
        (inodes, bytes): (u64, u64),
        who: Enforcement,
        now: u64,
    ) -> Result<Option<Admission>> {
        if !self.bind(owners) {
            return Ok(None);
        }
        let mut state = self.state.lock();
        let admits =
            |account: &Account| account.inodes.admits(inodes, now) && account.bytes.admits(bytes, now);
        if who == Enforcement::Bound && !state.of(owners).all(admits) {
            return Err(Error::QuotaExceeded);
        }
        state.each(owners, |account| {
            account.inodes.reserved = account.inodes.reserved.saturating_add(inodes);
            account.bytes.reserved = account.bytes.reserved.saturating_add(bytes);
            account.watch(now);
        });
        drop(state);
        Ok(Some(Admission { accounts: Arc::clone(self), owners, inodes, bytes }))
    }

    /// Returns how many of `bytes` [`Self::admit`] would admit.
    pub(crate) fn admissible(&self, owners: OwnerIds, bytes: u64, who: Enforcement, now: u64) -> u64 {
        if who == Enforcement::Exempt || !self.is_needed {
            return bytes;
        }
        let state = self.state.lock();
        let room = |account: &Account| {
            let Amount { hard, soft, deadline, .. } = account.bytes;
            let soft = if deadline != 0 && now >= deadline { soft } else { 0 };
            let lowest = [hard, soft].into_iter().filter(|&limit| limit != 0).min();
            lowest.map_or(u64::MAX, |limit| limit.saturating_sub(account.bytes.total()))
        };
        state.of(owners).map(room).fold(bytes, u64::min)
    }

    /// Records the bytes of blocks of `ino` that callers have.
    pub(crate) fn hold(&self, ino: Ino, owners: OwnerIds, bytes: u64, now: u64) {
        let mut state = self.state.lock();
        state.hold(ino, owners, bytes);
        state.each(owners, |account| account.watch(now));
    }

    /// Records the bytes of blocks of `ino` that callers still have.
    pub(crate) fn hold_still(&self, ino: Ino, bytes: u64, now: u64) {
        let mut state = self.state.lock();
        if let Some((owners, _)) = state.held.get(&ino).copied() {
            state.hold(ino, owners, bytes);
            state.each(owners, |account| account.watch(now));
        }
    }

    /// Returns the bytes of blocks of `ino` that callers have.
    pub(crate) fn held(&self, ino: Ino) -> u64 {
        if self.is_needed { self.state.lock().held.get(&ino).map_or(0, |held| held.1) } else { 0 }
    }

    /// Records that `ino`, which was charged as `before`, was stored and is charged as `after`. Its new blocks are no longer
    /// held. Held blocks belong to the new owners.
    pub(crate) fn store(&self, ino: Ino, before: Option<Charge>, after: Option<Charge>, now: u64) {
        if !self.is_needed || before == after {
            return;
        }
        let mut state = self.state.lock();
        if let (Some((_, held)), Some(after)) = (state.held.get(&ino).copied(), after) {
            let gained = after.bytes.saturating_sub(before.map_or(0, |before| before.bytes));
            state.hold(ino, after.ids.map(Some), held.saturating_sub(gained));
        }
        let mut changes = UsageChanges::default();
        changes.replace(before, after);
        for (kind, id, (inodes, bytes)) in changes.take() {
            if let Some(account) = state.accounts.get_mut(&(kind, id)) {
                account.inodes.used = account.inodes.used.saturating_add_signed(inodes);
                account.bytes.used = account.bytes.used.saturating_add_signed(bytes);
                account.watch(now);
            }
        }
    }

    /// Returns the ends of the grace periods of an owner with limits: of inodes and of space.
    pub(crate) fn deadlines(&self, kind: QuotaKind, id: u32) -> Option<(u64, u64)> {
        if !self.is_needed {
            return None;
        }
        let state = self.state.lock();
        state.accounts.get(&(kind, id)).map(|account| (account.inodes.deadline, account.bytes.deadline))
    }

    /// Returns the limits of an owner, and what is used.
    pub(crate) fn room(&self, kind: QuotaKind, id: u32) -> OwnerRoom {
        let state = self.state.lock();
        let of = |amount: &Amount| {
            let lowest = [amount.hard, amount.soft].into_iter().filter(|&limit| limit != 0).min();
            lowest.map(|limit| (limit, amount.total()))
        };
        state.accounts.get(&(kind, id)).map_or(OwnerRoom::default(), |account| OwnerRoom {
            bytes: of(&account.bytes),
            inodes: of(&account.inodes),
        })
    }
}

/// Room that belongs to a change of an inode, until the change is stored or given up. The copies of a change share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admissions(Vec<Arc<Admission>>);

impl Admissions {
    /// Adds room. Fails with `NoMemory`.
    pub(crate) fn add(&mut self, admission: Option<Admission>) -> Result<()> {
        if let Some(admission) = admission {
            self.0.try_reserve(1)?;
            self.0.push(Arc::new(admission));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry;
    use super::*;

    const USER: OwnerIds = [Some(7), Some(1), Some(0)];
    const DAY: u64 = 86_400;

    fn accounts(hard: u64, soft: u64) -> Arc<Accounts> {
        let mut raw = entry(7, 1, 4096);
        raw.dqb_bhardlimit.set(hard);
        raw.dqb_bsoftlimit.set(soft);
        raw.dqb_ihardlimit.set(3);
        let mut all = Accounts::default();
        all.add(QuotaKind::User, [raw, entry(8, 1, 1)].into_iter(), (86_400, 86_400));
        Arc::new(all)
    }

    fn charge(uid: u32, bytes: u64) -> Option<Charge> {
        Some(Charge { ids: [uid, 1, 0], inodes: 1, bytes })
    }

    #[test]
    fn a_hard_limit_binds_all_but_exempt_callers() {
        let all = accounts(8, 0);
        let admit = |bytes, who| all.admit(USER, (0, bytes), who, 5).map(|admission| admission.is_some());
        assert_eq!(admit(4096, Enforcement::Bound), Ok(true));
        assert_eq!(admit(4097, Enforcement::Bound), Err(Error::QuotaExceeded));
        assert_eq!(admit(4097, Enforcement::Exempt), Ok(true));
        assert_eq!(all.admissible(USER, 9000, Enforcement::Bound, 5), 4096);
        assert!(all.admit(USER, (2, 0), Enforcement::Bound, 5).is_ok());
        assert!(all.admit(USER, (3, 0), Enforcement::Bound, 5).is_err());
        assert!(matches!(all.admit([Some(8), None, None], (9, 1 << 40), Enforcement::Bound, 5), Ok(None)));
    }

    #[test]
    fn room_that_is_taken_counts_until_it_is_stored_or_given_up() {
        let all = accounts(12, 0);
        let first = all.admit(USER, (0, 4096), Enforcement::Bound, 5).unwrap();
        assert_eq!(all.admissible(USER, 9000, Enforcement::Bound, 5), 4096);
        all.store(Ino(20), charge(7, 4096), charge(7, 8192), 5);
        drop(first);
        assert_eq!(all.admissible(USER, 9000, Enforcement::Bound, 5), 4096);
        all.hold(Ino(20), USER, 4096, 5);
        assert_eq!(all.admissible(USER, 9000, Enforcement::Bound, 5), 0);
        // The held blocks are stored.
        all.store(Ino(20), charge(7, 8192), charge(7, 12288), 5);
        assert_eq!((all.held(Ino(20)), all.admissible(USER, 9000, Enforcement::Bound, 5)), (0, 0));
        all.store(Ino(20), charge(7, 12288), None, 5);
        assert_eq!(all.admissible(USER, 1 << 20, Enforcement::Bound, 5), 12288);
    }

    #[test]
    fn held_blocks_follow_a_file_to_its_new_owner() {
        let all = accounts(12, 0);
        all.hold(Ino(20), [Some(9), Some(1), Some(0)], 8192, 5);
        assert_eq!(all.admissible(USER, 1 << 20, Enforcement::Bound, 5), 8192);
        all.store(Ino(20), charge(9, 0), charge(7, 0), 5);
        assert_eq!(all.admissible(USER, 1 << 20, Enforcement::Bound, 5), 0);
        all.hold_still(Ino(20), 0, 5);
        assert_eq!(all.admissible(USER, 1 << 20, Enforcement::Bound, 5), 8192);
    }

    #[test]
    fn a_soft_limit_binds_once_its_grace_period_has_ended() {
        let all = accounts(0, 8);
        let mut now = 1000;
        let admit = |bytes, now| all.admit(USER, (0, bytes), Enforcement::Bound, now);
        drop(admit(8192, now).unwrap());
        assert_eq!(all.deadlines(QuotaKind::User, 7), Some((0, 0)));
        let taken = admit(8192, now).unwrap();
        all.store(Ino(20), charge(7, 0), charge(7, 8192), now);
        drop(taken);
        assert_eq!(all.deadlines(QuotaKind::User, 7), Some((0, now + DAY)));
        now += DAY - 1;
        assert!(admit(4096, now).is_ok());
        now += 1;
        assert!(admit(1, now).is_err() && admit(0, now).is_ok());
        assert!(all.admit(USER, (0, 1), Enforcement::Exempt, now).is_ok());
        // Below the limit, the period ends.
        all.store(Ino(20), charge(7, 8192), charge(7, 4096), now);
        assert_eq!(all.deadlines(QuotaKind::User, 7), Some((0, 0)));
        assert!(admit(4096, now).is_ok());
    }

    #[test]
    fn the_lower_limit_is_the_size_that_users_see() {
        let all = accounts(16, 12);
        assert_eq!(
            all.room(QuotaKind::User, 7),
            OwnerRoom { bytes: Some((12288, 4096)), inodes: Some((3, 1)) }
        );
        assert_eq!(all.room(QuotaKind::User, 8), OwnerRoom::default());
    }
}
