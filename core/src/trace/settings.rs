//! Settings in a trace: catalogs are read with the checks of [`Catalog::new`], and the argument
//! checks of tools, which are code, are restored by the reader.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::provider::{HostOffer, Provider};
use crate::settings::Settings;
use crate::tool::{ArgumentCheck, Catalog, Tool};

impl Serialize for Catalog {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Catalog {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(Vec::<Tool>::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl Serialize for Provider {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Provider {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(Vec::<HostOffer>::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// Makes the argument check of a tool anew, from its input schema for example.
pub type CheckFactory<'f> = dyn FnMut(&Tool) -> Result<Box<dyn ArgumentCheck>, String> + 'f;

/// Restores the argument checks of settings that were read from a trace.
///
/// # Errors
/// The first error of `factory`, with the name of the tool.
pub fn restore_checks(
    settings: &mut Settings,
    factory: &mut CheckFactory<'_>,
) -> Result<(), String> {
    let mut restore = |tool: &mut Tool| {
        if tool.check.is_some() {
            let check = factory(tool).map_err(|why| alloc::format!("{}: {why}", tool.name))?;
            tool.check = Some(check);
        }
        Ok(())
    };
    let acp = &mut settings.acp;
    for catalog in [
        &mut settings.catalog,
        &mut settings.services,
        &mut acp.agent.services,
        &mut acp.client.services,
    ] {
        catalog.change_tools(&mut restore)?;
    }
    settings.provider.change_tools(&mut restore)?;
    settings.run.iter_mut().filter_map(Arc::get_mut).try_for_each(restore)
}
