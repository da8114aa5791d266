# Man pages, sections 1, 3 and 7.
