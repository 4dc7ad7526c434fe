//! The types of the kernel engine: the properties that volumes of each type store, compared with the documentation.

mod broken;
mod contract;
mod damaged;
mod ids;
mod image;
mod needs;
mod numbers;
mod table;
mod times;
mod volumes;
