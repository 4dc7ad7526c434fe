//! The host cases (`obento_testkit::hosts`) on a mount of the module, for the page with all drivers and hosts.

use std::fs;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Access, Driver, FormatOptions, Limits, OpenOptions};
use obento_env::{FixedRandom, SystemClock};
use obento_testkit::hosts::{Folder, cases, run as run_case};
use obento_testkit::trials;
use rustix::mount::MountFlags;

use crate::machine::{Machine, disk, mount_as, umount};

fn driver(machine: &Machine) -> Result<Arc<dyn Driver>> {
    Ok(match machine.kind() {
        "obento-ext4" => Arc::new(obento_ext4::Ext4Driver),
        "obento-fat" => Arc::new(obento_fat::FatDriver::default()),
        "obento-exfat" => Arc::new(obento_exfat::ExFatDriver::default()),
        "obento-xv6" => Arc::new(obento_xv6::Xv6Driver),
        other => bail!("no driver is named '{other}'"),
    })
}

/// Creates a volume of the type `obento.kind` on disk 0, with the settings `obento.set`: `NAME:VALUE,...`.
fn format(machine: &Machine, driver: &dyn Driver) -> Result<Limits> {
    let device = Arc::new(MemDevice::new(vec![0; fs::read(disk(0))?.len()]));
    let format = driver.format().context("the driver creates no volumes")?;
    let kind = machine.value("kind");
    let mut options = FormatOptions::new(kind, Arc::new(SystemClock), Arc::new(FixedRandom(1)));
    let settings = machine.value("set").split(',').filter_map(|setting| setting.split_once(':'));
    options.settings = settings.map(|(name, value)| (name.into(), value.into())).collect();
    format.format(&*device, &options).context("formatting")?;
    fs::write(disk(0), device.snapshot())?;
    rustix::fs::sync();
    let open = OpenOptions { access: Access::ReadOnly, ..OpenOptions::new(Arc::new(SystemClock)) };
    Ok(driver.open(device, &open)?.limits())
}

/// Runs all cases, and prints `host: CASE: END` for each.
pub fn run(machine: &Machine) -> Result<()> {
    let driver = driver(machine)?;
    let limits = format(machine, &*driver)?;
    machine.mount(0, "/m", MountFlags::empty(), "")?;
    let kind = machine.kind().to_owned();
    let mut host = Folder::new("/m".into(), limits, move |access| {
        let flags = if access == Access::ReadOnly { MountFlags::RDONLY } else { MountFlags::empty() };
        umount("/m").and_then(|()| mount_as(&kind, 0, "/m", flags, "")).expect("it can be mounted again");
    });
    for (number, case) in cases().iter().enumerate() {
        let end = run_case(case, number, &mut host);
        println!("host: {}: {end}", case.name);
    }
    drop(host);
    umount("/m")?;
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(fs::read(disk(0))?));
    trials::check(&*driver, &device).map_err(|found| anyhow!("the check found {found}"))
}
