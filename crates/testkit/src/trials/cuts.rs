//! Power failures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use obento_base::Result;
use obento_block::BlockDevice;
use obento_env::Clock;

use super::opened_by;
use crate::crash::campaign::{self, Depth, Until, Volume};
use crate::crash::volume::PlanEnd;
use crate::crash::{Options, SeenStates};
use crate::plan::{Limits, Plan, random};

/// Tests a power failure at every write of each operation, with at least this number of states per plan.
#[track_caller]
pub fn every_operation(volume: &Volume<'_>, end: PlanEnd, least: usize) {
    let outcome = campaign::all(volume, &volume.named, end, &Depth::quick());
    outcome.expect_clean();
    assert!(outcome.judged > least * volume.named.len(), "{outcome:?}");
}

/// Tests one operation in `every`, for a volume that is too large for all of them.
#[track_caller]
pub fn some_operations(volume: &Volume<'_>, every: usize) {
    let plans: Vec<Plan> = volume.named.iter().step_by(every).cloned().collect();
    let outcome = campaign::all(volume, &plans, PlanEnd::Dropped, &Depth::quick());
    outcome.expect_clean();
    assert!(outcome.judged > 5 * plans.len(), "{outcome:?}");
}

/// Tests short plans, with a sync in every place.
#[track_caller]
pub fn short_plans(volume: &Volume<'_>) {
    campaign::all(volume, &volume.bounds.sample(), PlanEnd::Dropped, &Depth::quick()).expect_clean();
}

/// Tests random plans without operations that the format lacks.
#[track_caller]
pub fn random_plans(volume: &Volume<'_>, seeds: u64) {
    let limits = Limits { ops: 30, ..volume.limits.clone() };
    let plans: Vec<Plan> = (0..seeds).map(|seed| volume.without_lacking(random(seed, &limits))).collect();
    campaign::all(volume, &plans, PlanEnd::Closed, &Depth::quick()).expect_clean();
}

/// Tests the explorer: without barriers it finds lost changes, and the printed name reproduces them.
#[track_caller]
pub fn without_barriers(volume: &Volume<'_>) {
    let open = |device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>| {
        (volume.subject.open)(Arc::new(WithoutBarriers(device)), clock)
    };
    let volume = opened_by(volume, &open);
    let outcome = campaign::all(&volume, &volume.named[..8], PlanEnd::Dropped, &Depth::quick());
    let printed = outcome.failures.first().unwrap_or_else(|| panic!("nothing is lost: {outcome:?}"));
    let name = printed.split_once(": ").map_or(printed.as_str(), |(name, _)| name);
    assert!(name.starts_with("OBENTO_CRASH="), "{name}");
    for asked in [name, &name["OBENTO_CRASH=".len()..]] {
        let depth = Depth::new(Options::new(77)).of(asked);
        let again =
            campaign::long(&[opened_by(&volume, &open)], &depth, 1, Until::States(1), &SeenStates::default());
        assert_eq!((again.judged, again.failures.first()), (1, Some(printed)));
    }
}

/// Tests that an unknown case and a state that no window has do not pass.
#[track_caller]
pub fn unknown_names(volume: &Volume<'_>) {
    let known = format!("{}/{}", volume.name, volume.named[0].name);
    for name in [format!("{known}@999999:1:0:5-24-12"), "no-such-volume/create@9:1:0:5-24-12".into()] {
        let depth = Depth::quick().of(&name);
        let judge = || {
            campaign::long(std::slice::from_ref(volume), &depth, 1, Until::States(1), &SeenStates::default())
        };
        assert!(catch_unwind(AssertUnwindSafe(judge)).is_err(), "{name} passes");
    }
}

/// Tests each conformance case, except those that the volume leaves out.
#[track_caller]
pub fn conformance(volume: &Volume<'_>, least: usize) {
    let outcome = campaign::conformance(volume, &Depth::quick());
    outcome.expect_clean();
    assert!(outcome.judged > least, "{outcome:?}");
    assert_eq!(outcome.left_out.len(), volume.left_out.len(), "{:?}", volume.left_out);
}

/// Tests that a power failure before a repair leaves no problem that `expect` does not accept.
#[track_caller]
pub fn at_worst(volume: &Volume<'_>, expect: &(dyn Fn(Arc<dyn BlockDevice>) -> Result<()> + Sync)) {
    let open = |device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>| {
        expect(device.clone())?;
        (volume.subject.open)(device, clock)
    };
    let volume = opened_by(volume, &open);
    campaign::all(&volume, &volume.named, PlanEnd::Dropped, &Depth::quick()).expect_clean();
}

/// A device without flushes, as the explorer records it.
struct WithoutBarriers(Arc<dyn BlockDevice>);

impl BlockDevice for WithoutBarriers {
    obento_base::forward! { self.0;
        fn len(&self) -> u64;
        fn is_read_only(&self) -> bool;
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
        fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()>;
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// Creates tests of the cases about power failures, on the volume that `$volume` returns, an `Option<Volume>`; `None`
/// if a judge is missing. More than `$least` states of each operation are checked.
#[macro_export]
macro_rules! crash_trials {
    ($volume:expr, $least:expr, $seeds:expr) => {
        #[test]
        fn every_operation_survives_every_cut() {
            if let Some(volume) = $volume {
                $crate::trials::cuts::every_operation(
                    &volume,
                    $crate::crash::volume::PlanEnd::Dropped,
                    $least,
                );
            }
        }

        #[test]
        fn every_operation_survives_every_cut_until_the_volume_is_closed() {
            if let Some(volume) = $volume {
                $crate::trials::cuts::every_operation(
                    &volume,
                    $crate::crash::volume::PlanEnd::Closed,
                    $least,
                );
            }
        }

        #[test]
        fn short_plans_with_every_sync_survive_every_cut() {
            if let Some(volume) = $volume {
                $crate::trials::cuts::short_plans(&volume);
            }
        }

        #[test]
        fn random_plans_survive_every_cut() {
            if let Some(volume) = $volume {
                $crate::trials::cuts::random_plans(&volume, $seeds);
            }
        }

        #[test]
        fn without_barriers_synced_data_is_lost() {
            if let Some(volume) = $volume {
                $crate::trials::cuts::without_barriers(&volume);
            }
        }

        #[test]
        fn a_name_of_nothing_does_not_pass() {
            if let Some(volume) = $volume {
                $crate::trials::cuts::unknown_names(&volume);
            }
        }
    };
}
