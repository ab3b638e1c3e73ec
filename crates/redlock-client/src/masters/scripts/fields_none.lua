local fields = {}
