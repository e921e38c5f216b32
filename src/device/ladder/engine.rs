//! Which kind of segments serves requests where the settings leave it to the driver.

use crate::device::DeviceAllocator;
use crate::device::state::State;
use crate::driver::DriverError;

impl DeviceAllocator {
    /// Puts the settings and what is known of the driver into effect.
    pub(in crate::device) fn settle_engine(&self, state: &mut State) {
        let found = match self.driver.virtual_memory() {
            Some(_) => state.settings.virtual_segments(state.paging.maps),
            None => Some(false),
        };
        state.paging.virtual_memory = found == Some(true);
        state.paging.engine_open = found.is_none();
    }

    /// Tries the driver, unless another thread has meanwhile. Where the device was too full for that, fixed
    /// segments serve requests until it is tried again.
    #[cold]
    pub(in crate::device) fn choose_engine(&self) {
        let _choosing = self.trying.lock();
        let mut state = self.state.lock();
        if state.paging.engine_open {
            self.probe_mapping(&mut state);
            self.settle_engine(&mut state);
        }
    }
}

impl State {
    /// A call failed while memory was asked for. Where only a try of the driver led to virtual segments, that
    /// counts as their end; those there are stay. Another call that failed says nothing of mapping.
    pub(super) fn gives_up_virtual_segments(&mut self, error: DriverError) -> bool {
        let ends = self.settings.virtual_segments(None).is_none() && error.is_of_mapping();
        if ends {
            self.paging.maps = Some(false);
        }
        ends
    }
}
