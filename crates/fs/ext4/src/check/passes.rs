//! Running all passes.

use alloc::sync::Arc;

use obento_base::Result;
use obento_block::BlockDevice;
use obento_driver::{CheckOptions, CheckReport};

use super::events::{Event, EventSink};
use super::inodes::{self, PassContext};
use super::state::CheckState;
use super::view::View;
use super::{attributes, connectivity, counts, directories, links, mmp, orphans, quota, resize, super_block};
use crate::feature::RoCompat;

/// Checks the volume on `device` without repairs.
pub(super) fn look(
    device: Arc<dyn BlockDevice>,
    options: &CheckOptions,
    emit: &mut dyn FnMut(Event),
) -> Result<CheckReport> {
    survey(device, options, emit).map(|(report, _)| report)
}

/// Checks the volume on `device` without repairs. Also returns the state, which contains the blocks and the inodes in
/// use.
pub(super) fn survey(
    device: Arc<dyn BlockDevice>,
    options: &CheckOptions,
    emit: &mut dyn FnMut(Event),
) -> Result<(CheckReport, Arc<CheckState>)> {
    let mut report = CheckReport::default();
    let mut reported = EventSink { report: &mut report, emit };
    let view = View::open(device, options, &mut reported)?;
    super_block::check(&view, &mut reported);
    reported.progress("super block", 1, 1);
    let view = Arc::new(view);
    let state = CheckState::new(&view)?;
    state.take_metadata(&view);
    mmp::check(&view, &mut reported);
    resize::check(&view, &mut reported);
    let orphans = orphans::check(&view, &state, &mut reported);
    let known = PassContext::new(&view, orphans.clone());
    let (mut state, mut attributes, usage) =
        inodes::check(&view, state, known, options.threads, &mut reported);
    attributes::shared(&view, &mut state, &mut attributes, &mut reported);
    // Shared blocks are permitted with this feature, since such files are never written.
    let may_share = view.sb.ro_compat.contains(RoCompat::SHARED_BLOCKS);
    if state.has_twice() && !may_share {
        state.budget.renew_nodes();
        inodes::find_twice(&view, &state, &PassContext::new(&view, orphans), &mut reported);
    }
    let state = Arc::new(state);
    directories::check(&view, &state, options.threads, &mut reported);
    connectivity::check(&view, &state, &mut reported);
    links::check(&view, &state, attributes.doubtful, &mut reported);
    counts::check(&view, &state, options.threads, &mut reported);
    quota::check(&view, &state, &usage, &mut reported);
    let sb = &view.sb;
    report.label = sb.label().to_vec();
    report.block_size = sb.block_size.bytes();
    report.checked = true;
    Ok((report, state))
}
