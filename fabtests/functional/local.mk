# Two real processes, one behaviour each.
