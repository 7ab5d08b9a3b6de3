def resolve(name):
    raise NotImplementedError
