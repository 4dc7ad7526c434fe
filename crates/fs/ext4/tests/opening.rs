//! Opening and checking a volume with the result of a probe.

use obento_ext4::Ext4Driver;
use obento_testkit::opening::{assert_read_once, formatted};

#[test]
fn a_probe_a_check_and_an_open_read_the_super_block_once() {
    assert_read_once(&Ext4Driver, formatted(&Ext4Driver, "ext4", 600 << 20), 1024, 1024);
}
