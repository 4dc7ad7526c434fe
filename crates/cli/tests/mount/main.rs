//! `obento mount` on real mount points: what programs see, the volume afterwards, the end of a mount, and
//! loads.

mod all;
mod calls;
mod cuts;
mod databases;
mod earlier;
mod ends;
mod exfat;
mod failover;
mod fat;
mod full;
mod judges;
mod kept;
mod living;
mod matrix;
mod options;
mod programs;
mod provenance;
mod refusals;
mod requests;
mod stress;
mod support;
mod systemd;
mod together;
mod upgrade;
mod xv6;
