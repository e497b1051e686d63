SELECT trace FROM event WHERE seq = ?1
