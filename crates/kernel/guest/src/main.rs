//! The first process of a kernel in which `obento.ko` is tested. `cargo xtask kernel test` starts it.
//!
//! The kernel command line selects a case: `obento.case=NAME`, with values as `obento.KEY=VALUE`. The last line of the
//! output is `obento-guest: ok` or `obento-guest: failed: REASON`.

mod bench;
mod busy;
mod calls;
mod cases;
#[cfg(feature = "hosts")]
mod cuts;
mod damaged;
mod fast;
mod features;
mod history;
#[cfg(feature = "hosts")]
mod hosts;
mod listings;
mod machine;
mod model;
mod mounts;
mod quota;
mod sampler;
mod tree;
mod upgrade;
mod xv6;

use anyhow::{Result, bail};

use machine::Machine;

fn run(machine: &Machine) -> Result<()> {
    if machine.value("format") == "xv6" {
        xv6::format()?;
    }
    case(machine)?;
    if machine.kind() == "obento-xv6" { xv6::check() } else { Ok(()) }
}

fn case(machine: &Machine) -> Result<()> {
    match machine.value("case") {
        "tree" => tree::equals_the_kernels_own(machine),
        "model" => cases::model(machine),
        "parallel" => cases::parallel(machine),
        "full" => cases::full(machine),
        "memory" => cases::memory(machine),
        "cut" => cases::cut(machine),
        "replay" => cases::replay(machine),
        "replay-read-only" => cases::replay_read_only(machine),
        "calls" => calls::equal_the_kernels_own(machine),
        "mounts" => mounts::equal_the_kernels_own(machine),
        "quota" => quota::run(machine),
        "fast-write" => fast::write(),
        "fast-replay" => fast::replay(machine),
        "features" => features::all(machine),
        "history" => history::run(machine),
        "history-long" => history::long(machine),
        "listings" => listings::run(machine),
        "upgrade" => upgrade::run(machine),
        "upgrade-busy" => busy::run(machine),
        "volumes" => cases::volumes(machine),
        "brief" => cases::brief(machine),
        "bench" => bench::run(machine),
        #[cfg(feature = "hosts")]
        "hosts" => hosts::run(machine),
        #[cfg(feature = "hosts")]
        "cuts" => cuts::run(machine),
        "profile" => bench::profile(machine),
        "damaged" => damaged::all(machine),
        other => bail!("no case is named '{other}'"),
    }
}

fn main() {
    let outcome = Machine::start().and_then(|machine| {
        run(&machine)?;
        machine.finish()
    });
    match outcome {
        Ok(()) => println!("obento-guest: ok"),
        Err(error) => {
            machine::print_log();
            println!("obento-guest: failed: {error:#}");
        }
    }
    machine::power_off();
}
